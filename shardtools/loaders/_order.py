"""Which sample stands at which position of an epoch: a function of seed and epoch alone."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

_SHARDS, _ROWS = 0, 1
"""What a permutation is of; the two never share random words."""


@dataclass
class Order:
    """The samples of one epoch in a row. ``counts``: int64 [shards], how many samples each shard has.

    ``block_shards`` None keeps the order of the dataset. Else shards are permuted, and of each ``block_shards`` neighbours all
    samples are permuted together, both uniformly; what is read at one time lies in that many shards. Memory: 16 bytes for
    each sample of a block.
    """

    counts: Positions
    block_shards: int | None
    seed: int
    epoch: int
    _shards: Positions = field(init=False)
    """The shards in the order of the epoch."""
    _firsts: Positions = field(init=False)
    """Where each of them begins: [shards + 1]."""
    _entered: tuple[int, Positions] | None = field(init=False, default=None)
    """The block that was asked for last: its number, and its permutation."""

    def __post_init__(self) -> None:
        num_shards = len(self.counts)
        shuffled = self.block_shards is not None
        self._shards = self._permutation(num_shards, _SHARDS, 0) if shuffled else np.arange(num_shards, dtype=np.int64)
        self._firsts = np.concatenate(([0], np.cumsum(self.counts[self._shards]))).astype(np.int64)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def locate(self, positions: Positions) -> tuple[Positions, Positions]:
        """Shard and row of the sample at each position. Rising positions are cheapest: a block is permuted when it is entered."""
        if self.block_shards is None:
            return self._split(positions)
        blocks = (np.searchsorted(self._firsts, positions, side="right") - 1) // self.block_shards
        places = np.empty_like(positions)
        for block in np.unique(blocks):
            begin, permutation = self._enter(int(block))
            inside = blocks == block
            places[inside] = permutation[positions[inside] - begin] + begin
        return self._split(places)

    def blocks_from(self, position: int) -> tuple[list[list[int]], Positions, Positions]:
        """Of the block that holds the position, and of each after it: the shards that hold samples, first position, and one past the last.

        Where nothing is shuffled, each shard is a block.
        """
        size = self.block_shards or 1
        at = int(np.searchsorted(self._firsts, position, side="right")) - 1
        starts = np.arange(at - at % size, len(self.counts), size)
        held = self.counts[self._shards] > 0
        blocks = [self._shards[i : i + size][held[i : i + size]].tolist() for i in starts.tolist()]
        return blocks, self._firsts[starts], self._firsts[np.minimum(starts + size, len(self.counts))]

    def _split(self, places: Positions) -> tuple[Positions, Positions]:
        at = np.searchsorted(self._firsts, places, side="right") - 1
        return self._shards[at], places - self._firsts[at]

    def _enter(self, block: int) -> tuple[int, Positions]:
        """Where the block begins, and the permutation of its samples."""
        assert self.block_shards is not None
        begin = int(self._firsts[block * self.block_shards])
        if self._entered is None or self._entered[0] != block:
            end = int(self._firsts[min((block + 1) * self.block_shards, len(self.counts))])
            self._entered = None  # or two of them are held at once
            self._entered = block, self._permutation(end - begin, _ROWS, block)
        return begin, self._entered[1]

    def _permutation(self, count: int, kind: int, number: int) -> Positions:
        """Uniform, of ``range(count)``: sorts random words whose lowest bits are the numbers that are permuted.

        Raw words of Philox, unlike numpy's own shuffles, are promised never to change.
        """
        bits = np.uint64(max(count - 1, 0).bit_length())
        random = np.random.Philox(key=np.array([self.seed, self.epoch], np.uint64), counter=np.array([0, 0, number, kind], np.uint64))
        words: npt.NDArray[np.uint64] = random.random_raw(count)
        words >>= bits
        words <<= bits
        words |= np.arange(count, dtype=np.uint64)
        words.sort()
        words &= (np.uint64(1) << bits) - np.uint64(1)
        return words.view(np.int64)
