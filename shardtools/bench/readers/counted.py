"""Batches that say how many samples they hold: neither the rows of a tensor nor B does, with a collate function of the user's own."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """What travels from a worker. A batch alone does not tell how many samples it holds."""

    batch: Any
    num_samples: int


class Counting:
    """The collate function of a trial: counts what it is given."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: list[Any]) -> Sent:
        return Sent(self._collate(samples), len(samples))


class Counted:
    """The batches that were sent, and how many samples each holds, asked for in the same order."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque()
        self.num_given = 0
        """Samples of all batches that were asked for."""

    def bare(self, sent: Iterator[Sent]) -> Iterator[Any]:
        """The batches alone."""
        for batch, num_samples in sent:
            self._numbers.append(num_samples)
            yield batch

    def num_samples(self, _: Any) -> int:
        """Of the next batch."""
        self.num_given += (num_samples := self._numbers.popleft())
        return num_samples
