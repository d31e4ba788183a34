"""How many samples and stored bytes lie in each slice of what was scattered, split by split."""

from dataclasses import dataclass

import numpy as np

from shardtools.build.stages.layout import ScatterLayout
from shardtools.build.stages.segments import Words
from shardtools.build.stages.spill import Numbers


@dataclass(frozen=True)
class Sizes:
    """The slices of one split in their order."""

    counts: Numbers
    num_bytes: Numbers

    def tobytes(self) -> bytes:
        return self.counts.astype("<i8").tobytes() + self.num_bytes.astype("<i8").tobytes()

    @classmethod
    def of(cls, data: bytes) -> "Sizes":
        """What ``tobytes`` gave."""
        numbers = np.frombuffer(data, "<i8").reshape(2, -1)
        return cls(numbers[0], numbers[1])


class Tally:
    """Adds up the samples of one partition."""

    def __init__(self, layout: ScatterLayout) -> None:
        self._layout = layout
        self._found: list[dict[int, tuple[int, int]]] = [{} for _ in range(layout.num_splits)]
        self._totals = [0] * layout.num_splits

    def add(self, words: Words, splits: Numbers, costs: Numbers) -> None:
        for split, found in enumerate(self._found):
            chosen = np.flatnonzero(splits == split)
            its = costs[chosen]
            slices, inverse = np.unique(self._slices(split, words[chosen], its), return_inverse=True)
            counts = np.bincount(inverse, minlength=len(slices))
            num_bytes = np.bincount(inverse, its, len(slices)).astype(np.int64)
            for i, count, size in zip(slices.tolist(), counts.tolist(), num_bytes.tolist(), strict=True):
                before = found.get(i, (0, 0))
                found[i] = (before[0] + count, before[1] + size)
            self._totals[split] += int(its.sum())

    def sizes(self) -> list[Sizes]:
        """Of each split: all slices, or, where they are cut by bytes, those that have samples."""
        if self._layout.seed is None:
            ordered = [[found[i] for i in sorted(found)] for found in self._found]
        else:
            ordered = [[found.get(i, (0, 0)) for i in range(1 << self._layout.slice_bits)] for found in self._found]
        tables = [np.array(rows, np.int64).reshape(-1, 2) for rows in ordered]
        return [Sizes(table[:, 0], table[:, 1]) for table in tables]

    def _slices(self, split: int, words: Words, costs: Numbers) -> Numbers:
        if self._layout.seed is not None:
            return self._layout.slices(words)
        begins: Numbers = self._totals[split] + np.cumsum(costs) - costs
        return begins // self._layout.slice_bytes
