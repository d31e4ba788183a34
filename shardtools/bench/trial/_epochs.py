"""Passes over one loader, each beginning timed, and the end of it."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from shardtools.errors import UsageError

_NONE = object()
"""No batch; a batch may be anything."""


@dataclass(frozen=True)
class Start:
    """How long it took an epoch to begin, in seconds."""

    iter_s: float
    """The call of ``iter(loader)``."""
    first_batch_s: float
    """From there to the first batch."""


class Epochs:
    """One epoch after another. An epoch is begun when the one before is exhausted: left early, a loader with persistent workers
    first waits for every batch under way."""

    def __init__(self, loader: Any, now: Callable[[], float]) -> None:
        self._loader = loader
        self._now = now
        self._batches: Iterator[Any] | None = None
        self.starts: list[Start] = []

    def begin(self) -> tuple[Any, Iterator[Any]]:
        """The first batch and all batches, that one included. Raises UsageError where there is none."""
        batches = self.again()
        first = next(batches, _NONE)
        if first is _NONE:
            raise UsageError("expected at least one batch, got none: the data is empty; name other data")
        return first, chain(iter((first,)), batches)

    def again(self) -> Iterator[Any]:
        """All batches of another epoch, whose iterator is there when this returns. Its first batch is timed when it is asked for."""
        self._batches = None  # workers that do not persist end before the next ones start
        _tell_epoch(self._loader, len(self.starts))
        began = self._now()
        batches = self._batches = iter(self._loader)
        return self._timed(batches, self._now() - began)

    def _timed(self, batches: Iterator[Any], iter_s: float) -> Iterator[Any]:
        began = self._now()
        first = next(batches, _NONE)
        self.starts.append(Start(iter_s, self._now() - began))
        if first is _NONE:
            return
        yield first
        del first  # else it lived for as long as the epoch
        yield from batches

    def rest(self) -> Iterator[Any]:
        """What is left of the running epoch."""
        return iter(()) if self._batches is None else self._batches

    def end(self) -> float:
        """Deletes loader and iterator, which joins the workers. Returns the seconds it took."""
        began = self._now()
        self._batches = self._loader = None
        took = self._now() - began
        gc.collect()
        return took


def _tell_epoch(loader: Any, number: int) -> None:
    """As a training loop does, so that each epoch has an order of its own."""
    for part in (loader.dataset, loader.sampler, loader.batch_sampler):
        if callable(set_epoch := getattr(part, "set_epoch", None)):
            set_epoch(number)
