"""What the process that owns a dataset and its DataLoader workers tell each other, in memory they share."""

from collections import Counter
from typing import Any

import torch
from torch.utils.data import get_worker_info

REASONS = ("damaged", "undecodable")
"""Why a sample is bad: its bytes break the format, or its decoder failed."""
_MAX_WORKERS = 1024
_EPOCH, _START, _SKIP, _GENERATION, _CLAIM, _COUNTS = range(6)
_UNCLAIMED, _OWNER = -1, -2
_LOADED = 0
"""The row of counts that a state brought along; the owner's is 1, the workers' follow."""


class Shared:
    """Epoch, where to start in it, and what was bad. Travels to workers however they start, and reaches those that live on."""

    def __init__(self) -> None:
        cells = torch.zeros(_COUNTS + (_MAX_WORKERS + 2) * len(REASONS), dtype=torch.int64)
        self._cells: torch.Tensor = cells.share_memory_()  # type: ignore[no-untyped-call]
        self._cells[_CLAIM] = _UNCLAIMED
        self._used_generation = -1
        """The last place this copy has taken up; each process has its own."""

    @property
    def epoch(self) -> int:
        return int(self._cells[_EPOCH])

    @property
    def start(self) -> int:
        """The position at which the next pass over the epoch starts."""
        return int(self._cells[_START])

    @property
    def skip(self) -> int:
        """How many samples of that pass a single process has had already."""
        return int(self._cells[_SKIP])

    def set(self, epoch: int, start: int, skip: int) -> None:
        self._cells[_EPOCH], self._cells[_START], self._cells[_SKIP] = epoch, start, skip
        self._cells[_GENERATION] += 1
        self._cells[_CLAIM] = _UNCLAIMED

    def begin(self) -> tuple[int, int]:
        """Where the pass that begins now starts, and how many samples it skips: the place that was set holds for one pass.

        All workers of one pass draw from one seed, by which they know each other; those that live on keep it, and remember.
        """
        worker, generation = get_worker_info(), int(self._cells[_GENERATION])
        claim = _OWNER if worker is None else worker.seed - worker.id
        if self._used_generation != generation and int(self._cells[_CLAIM]) == _UNCLAIMED:
            self._cells[_CLAIM] = claim
        if self._used_generation == generation or int(self._cells[_CLAIM]) != claim:
            self._forget_bad()
            return 0, 0
        self._used_generation = generation
        return self.start, self.skip

    def count_bad(self, reason: str) -> int:
        """How many samples of the pass are bad so far, this one with them, as far as all processes know by now."""
        self._counts()[_row(), REASONS.index(reason)] += 1
        return self.bad.total()

    @property
    def bad(self) -> Counter[str]:
        """Bad samples of the pass by reason, those before the place that was loaded with them."""
        totals = self._counts().sum(dim=0).tolist()
        return Counter({reason: count for reason, count in zip(REASONS, totals, strict=True) if count})

    def set_bad(self, bad: dict[str, Any]) -> None:
        counts = self._counts()
        counts[:] = 0
        counts[_LOADED] = torch.tensor([int(bad.get(reason, 0)) for reason in REASONS])

    def _forget_bad(self) -> None:
        """A pass from the beginning counts anew."""
        worker = get_worker_info()
        self._counts()[_row()] = 0
        if worker is None or worker.id == 0:
            self._counts()[_LOADED] = 0

    def _counts(self) -> torch.Tensor:
        counts: torch.Tensor = self._cells[_COUNTS:].view(-1, len(REASONS))
        return counts


def _row() -> int:
    worker = get_worker_info()
    return 1 if worker is None else 2 + worker.id % _MAX_WORKERS
