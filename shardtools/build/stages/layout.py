"""How the samples of a scattered dataset are ordered, and into which pieces spills part them."""

from dataclasses import dataclass

import numpy as np

from shardtools.build.planning import PlannedBuild
from shardtools.build.stages.segments import Words
from shardtools.build.stages.spill import Numbers

BUCKET_BYTES = 32 << 20
"""What a bucket should have at most, so that it can be held in memory to be sorted."""
_MOST_BUCKETS = 1 << 13
_SLICE_BYTES = 1 << 20
_MOST_SLICES = 1 << 12
_SHARD_SLICES = 64
_SMALLEST_SLICE = 512
_WORD_BITS = 64


class OrderWords:
    """One random word for each row of a partition, in their order: a function of the seed, the partition and the row.

    Raw words of numpy's Philox with the seed as its key and the partition in its counter, which are promised never to change.
    """

    def __init__(self, seed: int | None, partition: int) -> None:
        self._philox = None if seed is None else np.random.Philox(key=seed, counter=[0, 0, 0, partition])

    def take(self, count: int) -> Words:
        """The words of the next rows; zeros without a seed."""
        words: Words = np.zeros(count, np.uint64) if self._philox is None else np.asarray(self._philox.random_raw(count))
        return words


@dataclass(frozen=True)
class ScatterLayout:
    """Which segment a sample goes to, by split and word; and the finer slices whose sizes tell where parts are cut."""

    seed: int | None
    """None: the order stays as it is."""
    num_splits: int
    """1 without splits."""
    bucket_bits: int
    slice_bits: int
    """With a seed, slices are what the first bits of words tell apart, no coarser than buckets."""
    slice_bytes: int
    """Without one, they are so many stored bytes each of one split of one partition."""

    @classmethod
    def of(cls, planned: PlannedBuild) -> "ScatterLayout":
        """Follows from the plan alone."""
        recipe, expected = planned.plan.recipe, max(planned.survey.expected_bytes, 1)
        shard_bytes = recipe.limit.num_bytes or _SLICE_BYTES * _SHARD_SLICES
        slice_bytes = min(max(shard_bytes // _SHARD_SLICES, _SMALLEST_SLICE), _SLICE_BYTES)
        num_splits = max(len(recipe.selection.split), 1)
        if not planned.is_permuted:
            return cls(None, num_splits, 0, 0, slice_bytes)
        bucket_bits = _bits(min(expected // BUCKET_BYTES, _MOST_BUCKETS - 1))
        slice_bits = max(bucket_bits, _bits(min(expected // slice_bytes, _MOST_SLICES - 1)))
        return cls(recipe.shuffle_seed, num_splits, bucket_bits, slice_bits, slice_bytes)

    @property
    def num_segments(self) -> int:
        return self.num_splits << self.bucket_bits

    def segments(self, words: Words, splits: Numbers) -> Numbers:
        """The segment of each sample: split by split, bucket by bucket."""
        return (splits << self.bucket_bits) + _first_bits(words, self.bucket_bits)

    def slices(self, words: Words) -> Numbers:
        """The slice of each sample in its split, where there is a seed."""
        return _first_bits(words, self.slice_bits)


def _bits(number: int) -> int:
    """Enough bits for so many and one more."""
    return number.bit_length()


def _first_bits(words: Words, num_bits: int) -> Numbers:
    if not num_bits:
        return np.zeros(len(words), np.int64)
    return (words >> np.uint64(_WORD_BITS - num_bits)).astype(np.int64)
