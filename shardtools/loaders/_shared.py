"""What the process that owns a dataset and its DataLoader workers tell each other, in memory they share."""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

REASONS = ("damaged", "undecodable")
"""Why a sample is bad: its bytes break the format, or its decoder failed."""
_MAX_WORKERS = 1024
_MAX_LATE = 64
_EPOCH, _START, _SKIP, _GENERATION, _BY_WORKERS, _PASS, _CLAIMS = range(7)
_READERS = _CLAIMS + _MAX_LATE
"""Single cells; from ``_CLAIMS`` on one for each of the places set last, from ``_READERS`` on a row for each reader."""
_UNCLAIMED, _OWNER = -1, -2
_FROM_PLACE, _WHOLE = range(2)
"""What the last pass is: from the place that was set on, or the epoch from its beginning."""
_TAKEN, _BAD = 0, 1
"""Of a reader's row: the place it took up last, and from there on its bad samples by reason."""
_LOADED, _OWNERS, _WORKERS = range(3)
"""The row of what a state brought along, the owner's, the first worker's."""


class Begin(NamedTuple):
    """Of a pass."""

    epoch: int
    start: int
    """Position it starts at."""
    skip: int
    """Samples from there on that were had before."""
    is_again: bool
    """The epoch was read, at least begun, before, and nothing was set since."""


class Shared:
    """Epoch, where to start in it, and what was bad. Travels to workers however they start, and reaches those that live on."""

    def __init__(self) -> None:
        cells = torch.zeros(_READERS + (_MAX_WORKERS + 2) * (_BAD + len(REASONS)), dtype=torch.int64)
        self._cells: torch.Tensor = cells.share_memory_()  # type: ignore[no-untyped-call]
        self._begun_by = 0
        """The process that began a pass with this object."""
        self.set(0, 0, 0)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy of another kind than a worker's has memory of its own, for workers of its own."""
        vars(self).update(state)
        self._cells.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        return int(self._cells[_EPOCH])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._cells[_EPOCH] = epoch

    @property
    def start(self) -> int:
        """The position at which the last pass over the epoch started; before the first, at which it will."""
        return 0 if self._cells[_PASS] == _WHOLE else int(self._cells[_START])

    @property
    def skip(self) -> int:
        """How many samples of that pass a single process had had before."""
        return 0 if self._cells[_PASS] == _WHOLE else int(self._cells[_SKIP])

    @property
    def is_by_workers(self) -> bool:
        """Whether the last pass is read by workers, whose places only they know."""
        return bool(self._cells[_BY_WORKERS])

    def set(self, epoch: int, start: int, skip: int) -> None:
        self._generation = int(self._cells[_GENERATION]) + 1
        self._set = (epoch, start, skip)
        """What workers that are started now are started for, whatever is set before they read it."""
        self._cells[_EPOCH], self._cells[_START], self._cells[_SKIP] = self._set
        self._cells[_GENERATION] = self._generation
        self._cells[_CLAIMS + self._generation % _MAX_LATE] = _UNCLAIMED
        self._cells[_BY_WORKERS], self._cells[_PASS] = 0, _FROM_PLACE

    def begin(self) -> Begin:
        """The pass that begins now: the place that was set holds for one.

        The workers of one pass know each other by their seed and number. Another pass may have the same, where somebody seeds
        anew, or by workers that live on: so each takes up a place once.
        """
        worker, generation = get_worker_info(), int(self._cells[_GENERATION])
        epoch, start, skip = (int(self._cells[cell]) for cell in (_EPOCH, _START, _SKIP))
        if worker is not None and self._begun_by != os.getpid() and self._generation != generation:
            generation, (epoch, start, skip) = self._generation, self._set  # a place was set before this worker got here
        self._begun_by, self._generation = os.getpid(), generation
        claim = _OWNER if worker is None else (worker.seed - worker.id) ^ worker.num_workers
        self._tell(_BY_WORKERS, int(worker is not None))
        claimed = _CLAIMS + generation % _MAX_LATE
        if self._cells[claimed] == _UNCLAIMED:
            self._cells[claimed] = claim
        taken = self._readers()[_row(), _TAKEN]
        if self._cells[claimed] != claim or taken == generation:
            self._tell(_PASS, _WHOLE)
            self._forget_bad()
            return Begin(epoch, 0, 0, is_again=True)
        self._readers()[_row(), _TAKEN] = generation
        return Begin(epoch, start, skip, is_again=False)

    def _tell(self, cell: int, value: int) -> None:
        """Of this process's pass, unless another place was set meanwhile."""
        if self._cells[_GENERATION] == self._generation:
            self._cells[cell] = value

    def count_bad(self, reason: str) -> int:
        """How many samples of the pass are bad so far, this one with them, as far as all processes know by now."""
        self._bad()[_row(), REASONS.index(reason)] += 1
        return self.bad.total()

    @property
    def bad(self) -> Counter[str]:
        """Bad samples of the pass by reason, those before the place that was loaded with them."""
        return _by_reason(self._bad().sum(dim=0))

    @property
    def own_bad(self) -> Counter[str]:
        """Those this process found; what was loaded counts as the first worker's. Over all workers they add up to ``bad``."""
        own = self._bad()[_row()]
        return _by_reason(own + self._bad()[_LOADED] if _row() == _WORKERS else own)

    def set_bad(self, bad: Mapping[str, int]) -> None:
        self._bad()[:] = 0
        self._bad()[_LOADED] = _as_row(bad)

    def set_own_bad(self, bad: Mapping[str, int]) -> None:
        self._forget_bad()
        self._bad()[_row()] = _as_row(bad)

    def _forget_bad(self) -> None:
        """A pass from the beginning counts anew: each worker its own, the first also those that are no worker's now."""
        worker, counts = get_worker_info(), self._bad()
        if worker is None:
            counts[:] = 0
            return
        counts[_row()] = 0
        if worker.id == 0:
            counts[:_WORKERS] = 0
            counts[_WORKERS + worker.num_workers :] = 0

    def _readers(self) -> torch.Tensor:
        return self._cells[_READERS:].view(-1, _BAD + len(REASONS))

    def _bad(self) -> torch.Tensor:
        return self._readers()[:, _BAD:]


def _row() -> int:
    worker = get_worker_info()
    return _OWNERS if worker is None else _WORKERS + worker.id % _MAX_WORKERS


def _as_row(bad: Mapping[str, int]) -> torch.Tensor:
    return torch.tensor([int(bad.get(reason, 0)) for reason in REASONS])


def _by_reason(counts: torch.Tensor) -> Counter[str]:
    return Counter({reason: count for reason, count in zip(REASONS, counts.tolist(), strict=True) if count})
