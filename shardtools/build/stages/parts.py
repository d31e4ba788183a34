"""What was scattered, cut into the parts that shards are built from."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shardtools.build.stages.layout import ScatterLayout
from shardtools.build.stages.scattered import Scattered
from shardtools.build.stages.sizes import Sizes
from shardtools.build.stages.spill import Numbers
from shardtools.partitions import partition_bytes
from shardtools.plan import Recipe


@dataclass(frozen=True)
class Part:
    """A run of samples of one split in dataset order: what one worker builds at a time."""

    index: int
    split: str
    split_number: int
    bins: range
    """The buckets they lie in; without a seed, the partitions."""
    skip: int
    """So many samples of the first bin belong to the part before."""
    num_samples: int
    inputs: str
    """SHA-256 of everything that was scattered."""

    def inputs_digest(self) -> str:
        place = f"{self.split} {self.bins.start} {self.bins.stop} {self.skip} {self.num_samples} {self.inputs}"
        return hashlib.sha256(place.encode()).hexdigest()


@dataclass(frozen=True)
class _Split:
    """One split of all partitions."""

    slices: Sizes
    bins: Numbers
    """How many samples each bin has."""

    @property
    def num_bytes(self) -> int:
        return int(self.slices.num_bytes.sum())

    @property
    def num_samples(self) -> int:
        return int(self.slices.counts.sum())


def cut_parts(recipe: Recipe, layout: ScatterLayout, scattered: Sequence[Scattered]) -> list[Part]:
    """The parts in dataset order, split by split. They follow from what was scattered alone."""
    names = [name for name, _ in recipe.selection.split] or [""]
    splits = [_collected(layout, scattered, number) for number in range(layout.num_splits)]
    inputs = hashlib.sha256("".join(one.receipt.inputs_digest for one in scattered).encode()).hexdigest()
    total_bytes, num_samples = sum(split.num_bytes for split in splits), sum(split.num_samples for split in splits)
    rule = _Rule.of(recipe, total_bytes, num_samples)
    parts: list[Part] = []
    for number, (name, split) in enumerate(zip(names, splits, strict=True)):
        ends = np.cumsum(split.bins)
        for begin, end in rule.ranges(split):
            first, last = (int(np.searchsorted(ends, rank, "right")) for rank in (begin, end - 1))
            skip = begin - int(ends[first] - split.bins[first])
            parts.append(Part(len(parts), name, number, range(first, last + 1), skip, end - begin, inputs))
    return parts


def _collected(layout: ScatterLayout, scattered: Sequence[Scattered], number: int) -> _Split:
    sizes = [one.sizes[number] for one in scattered]
    if layout.seed is None:
        slices = Sizes(np.concatenate([one.counts for one in sizes]), np.concatenate([one.num_bytes for one in sizes]))
        return _Split(slices, np.array([one.counts.sum() for one in sizes]))
    slices = Sizes(sum(one.counts for one in sizes), sum(one.num_bytes for one in sizes))  # type: ignore[arg-type]
    return _Split(slices, slices.counts.reshape(1 << layout.bucket_bits, -1).sum(1))


@dataclass(frozen=True)
class _Rule:
    """How large parts are, by the rule for partitions of the input whose stored bytes are known."""

    target_bytes: int
    shard_samples: int | None
    """Parts are whole shards of so many samples. None: shards are filled by bytes."""
    is_cut_evenly: bool
    """Parts are below a shard, so that all cores have work: equal ones leave no crumb."""

    @classmethod
    def of(cls, recipe: Recipe, total_bytes: int, num_samples: int) -> "_Rule":
        if recipe.limit.num_samples is not None:
            return cls(partition_bytes(max(total_bytes, 1), 1.0, None), recipe.limit.num_samples, False)
        budget = recipe.format.encoder(recipe.fields, recipe.limit.num_bytes).budget_bytes
        # A shard is closed before the sample that does not fit: up to one sample's bytes stay free.
        capacity = max(budget - total_bytes // max(num_samples, 1), budget // 2, 1)
        target = partition_bytes(max(total_bytes, 1), 1.0, capacity)
        return cls(target, None, target * 2 < capacity * 1.9)

    def ranges(self, split: _Split) -> Iterator[tuple[int, int]]:
        """The samples of each part, by their rank in the split."""
        count, total = split.num_samples, split.num_bytes
        if not count:
            return
        num_parts = max(1, -(-total // self.target_bytes))
        if self.shard_samples is not None:
            step = max(1, self.target_bytes * count // (max(total, 1) * self.shard_samples)) * self.shard_samples
            cuts = list(range(0, count, step))
        else:
            step = -(-total // num_parts) if self.is_cut_evenly else self.target_bytes
            cuts = [0, *_ranks(split.slices, range(step, total, step))]
        bounds = sorted({*cuts, count})
        yield from pairwise(bounds)


def _ranks(slices: Sizes, places: range) -> Iterator[int]:
    """The sample at each place in bytes, as if those of a slice were equally large; in whole numbers, which every machine rounds alike."""
    ends = np.cumsum(slices.num_bytes)
    num_before = np.cumsum(slices.counts) - slices.counts
    for place, at in zip(places, np.searchsorted(ends, places, "right").tolist(), strict=True):
        num_bytes, count = int(slices.num_bytes[at]), int(slices.counts[at])
        yield int(num_before[at]) + (place - int(ends[at]) + num_bytes) * count // num_bytes
