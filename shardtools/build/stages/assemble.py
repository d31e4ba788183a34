"""The pass that builds shards of what was scattered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from shardtools.build.attempts import Meter, Rejects, StagedNames, Terms
from shardtools.build.receipts import Receipt
from shardtools.build.rolling import ShardRoller
from shardtools.build.stages.layout import ScatterLayout
from shardtools.build.stages.parts import Part
from shardtools.build.stages.segments import Samples, in_order
from shardtools.build.stages.spill import Frame, SpillFacts, frames, read_frame
from shardtools.engines import Report
from shardtools.errors import StorageError
from shardtools.formats import Chunk
from shardtools.places import at_once
from shardtools.storage import Storage, open_storage
from shardtools.units import Budget

HELD_BYTES = 128 << 20
"""How much of a bucket is held in memory at a time. One that is larger than planned is read once for each such stretch of words."""
_WORDS = 1 << 64


@dataclass(frozen=True)
class AssembleTask:
    """Builds parts of one plan; needs no inputs, only the destination."""

    terms: Terms
    layout: ScatterLayout
    spills: tuple[SpillFacts, ...]
    """Of all partitions, in dataset order."""

    def __call__(self, item: Part, report: Report) -> None:
        terms, recipe, storage = self.terms, self.terms.recipe, open_storage(self.terms.destination)
        budget_bytes = recipe.format.encoder(recipe.fields, recipe.limit.num_bytes).budget_bytes
        staged = StagedNames(terms, storage, item.index)
        roller = ShardRoller(staged, budget_bytes, Meter(report, Rejects(Budget())), item.split)
        with roller.staging():
            for chunk in self._chunks(storage, item):
                roller.add(chunk)
            if roller.num_samples != item.num_samples:
                raise StorageError(
                    f"expected {item.num_samples:,} samples in the spills of part {item.index}, got {roller.num_samples:,}; "
                    "another run may be writing here: let it finish, then run again"
                )
        receipt = Receipt(
            partition=item.index,
            plan_digest=terms.plan_digest,
            inputs_digest=item.inputs_digest(),
            shards=tuple(roller.shards),
            oversize_keys=tuple(roller.oversize_keys),
        )
        terms.leave(storage, terms.names.receipt(item.index), receipt.serialize())

    def _chunks(self, storage: Storage, part: Part) -> Iterator[Chunk]:
        begin, left = part.skip, part.num_samples
        for number, found in zip(part.bins, self._bins(storage, part), strict=True):
            end = min(begin + left, sum(frame.num_samples for _, frame in found))
            if self.layout.seed is None:
                yield from _as_it_was(storage, found, begin, end)
            else:
                width = _WORDS >> self.layout.bucket_bits
                yield from _sorted(storage, found, range(number * width, (number + 1) * width), range(begin, end))
            left -= end - begin
            begin = 0

    def _bins(self, storage: Storage, part: Part) -> Iterator[list[tuple[int, Frame]]]:
        """The frames of each bin of the part, each with the partition it is of."""
        if self.layout.seed is None:
            for partition in part.bins:
                segments = range(part.split_number, part.split_number + 1)
                yield [(partition, frame) for of_segment in frames(storage, self.spills[partition], segments) for frame in of_segment]
            return
        first = part.split_number << self.layout.bucket_bits
        segments = range(first + part.bins.start, first + part.bins.stop)
        tables = list(at_once(storage, lambda spill: list(frames(storage, spill, segments)), self.spills))
        for i in range(len(part.bins)):
            yield [(partition, frame) for partition, table in enumerate(tables) for frame in table[i]]


def _as_it_was(storage: Storage, found: Sequence[tuple[int, Frame]], begin: int, end: int) -> Iterator[Chunk]:
    """The samples of one partition from the ``begin``-th up to the ``end``-th, run by run."""
    for partition, frame in found:
        if begin < frame.num_samples and end > 0:
            yield from in_order([(partition, read_frame(storage, frame))], max(begin, 0), end)
        begin, end = begin - frame.num_samples, end - frame.num_samples


def _sorted(storage: Storage, found: Sequence[tuple[int, Frame]], words: range, ranks: range) -> Iterator[Chunk]:
    """The samples of these ranks in one bucket, which has words of this range."""
    num_turns = max(1, ceil(sum(frame.memory_bytes for _, frame in found) / HELD_BYTES))
    done = 0
    for turn in range(num_turns):
        low, high = (words.start + _length(words) * i // num_turns for i in (turn, turn + 1))
        held = list(_held(storage, found, None if num_turns == 1 else (low, high)))
        num_held = sum(len(samples.words) for _, samples in held)
        if done + num_held > ranks.start:
            yield from in_order(held, max(ranks.start - done, 0), ranks.stop - done)
        del held
        done += num_held
        if done >= ranks.stop:
            return


def _length(words: range) -> int:
    """``len`` refuses what is longer than an index can be."""
    return words.stop - words.start


def _held(storage: Storage, found: Sequence[tuple[int, Frame]], between: tuple[int, int] | None) -> Iterator[tuple[int, Samples]]:
    def load(one: tuple[int, Frame]) -> tuple[int, Samples]:
        samples = read_frame(storage, one[1])
        return one[0], samples if between is None else samples.between(*between)

    return at_once(storage, load, found)
