"""One partition's samples on their way from the source through steps and transforms, and what became of each that was read."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardtools.duplicates import key_digest
from shardtools.errors import ShardtoolsError
from shardtools.manifest import Ledger
from shardtools.plan import Partition, Recipe
from shardtools.plugins import name_of
from shardtools.sample import Batch, Reject, RejectSink, ignore_reject
from shardtools.selection import Selection, canonical_text
from shardtools.transforms import PartitionWork

_LEFT_OUT = ("documents-empty", "documents-dropped", "chats-dropped")
"""Counts of transforms that say how many samples they left out on purpose."""
_DEDUP, _LIMIT = "dedup", "limit"


@dataclass(frozen=True)
class Cut:
    """Which samples of a partition are taken, of those that its steps leave; by default all."""

    dropped: bytes = b""
    """Bit ``i % 8`` of byte ``i // 8``, counted from the lowest, is set where sample ``i`` repeats an earlier one."""
    keep: int | None = None
    """So many of the others are taken, the first ones. None: all."""

    def of(self, begin: int, count: int) -> list[int]:
        """Those of the samples ``begin`` up to ``begin + count`` that repeat no earlier one, counted from ``begin``."""
        if not self.dropped:
            return list(range(count))
        return [i for i in range(count) if not self.dropped[(begin + i) >> 3] >> ((begin + i) & 7) & 1]


@dataclass(frozen=True)
class Selected:
    """A partition with what is taken of it."""

    partition: Partition
    cut: Cut = field(default_factory=Cut)

    @property
    def index(self) -> int:
        return self.partition.index

    def inputs_digest(self) -> str:
        """As of the partition where all is taken: what is taken follows from other partitions, too."""
        inputs = self.partition.inputs_digest()
        if self.cut == Cut():
            return inputs
        return hashlib.sha256(f"{inputs} {self.cut.keep} ".encode() + self.cut.dropped).hexdigest()


@dataclass(frozen=True)
class Route:
    """Which of a partition's samples become rows in one reading."""

    cut: Cut = field(default_factory=Cut)
    split: int | None = None
    """Only those of the split of this number: documents of different splits never share a row. None: all."""

    @property
    def is_again(self) -> bool:
        """What was read was counted, and what was bad set aside, when the partition was read for the first split."""
        return bool(self.split)


def split_names(selection: Selection, batch: Batch) -> list[bytes]:
    """What decides on the split of each sample: the text of its group, without one its own key."""
    if selection.group_by is None:
        return batch.keys
    groups = batch.extras[selection.group_by]
    return [key if group is None else canonical_text(group) for key, group in zip(batch.keys, groups, strict=True)]


class Reading:
    """Reads a partition once. ``digests`` are those of the keys that came to the transforms."""

    def __init__(self, recipe: Recipe, roots: Sequence[str], partition: Partition, reject: RejectSink, route: Route = Route()) -> None:
        self._recipe = recipe
        self._roots = roots
        self._partition = partition
        self._reject = reject
        self._route = route
        self._num_samples = self._num_blank = self._num_rejects = self._num_elsewhere = 0
        self._left_out: Counter[str] = Counter()
        # Rows are numbered by this, and their order is drawn by it: no two splits may share it.
        index = partition.index if route.split is None else partition.index * len(recipe.selection.split) + route.split
        self._steps = [PartitionWork(partition.index, self._reject_step, roots=roots) for _ in recipe.steps]
        self._works = [PartitionWork(index, self._reject_read) for _ in recipe.transforms]
        self.digests: list[bytes] = []

    def batches(self) -> Iterator[Batch]:
        """What is to be stored, in order."""
        batches = self.samples()
        for transform, work in zip(self._recipe.transforms, self._works, strict=True):
            batches = transform.apply(batches, work)
        return batches

    def samples(self) -> Iterator[Batch]:
        """What steps and selection leave of what is read, in order, before rows are made of it."""
        batches = self._read()
        for step, work in zip(self._recipe.steps, self._steps, strict=True):
            batches = step.apply(batches, work)
        if self._route.cut != Cut():
            batches = self._cut(batches)
        if self._route.split is not None:
            batches = self._of_split(batches, self._route.split)
        return self._noted(batches) if self._works else batches

    def reject_stored(self, reject: Reject) -> None:
        """Takes what the format cannot store. Where rows are made, a row is no sample that was read."""
        if self._works:
            self._reject(reject)
        else:
            self._reject_read(reject)

    def ledger(self, num_stored: int, rejects: Counter[str]) -> Ledger:
        """Where every sample went. Raises ShardtoolsError where one was lost."""
        filters = sum((work.counts for work in self._steps), self._left_out)
        num_written = self._num_samples - self._num_rejects - filters.total() - self._num_elsewhere
        if self._route.is_again:
            filters, self._num_blank = Counter(), 0
        if not self._works:
            if num_written != num_stored:
                raise self._lost(f"{num_written:,} samples to be written", f"{num_stored:,} stored")
            return Ledger(num_stored, filters.total(), rejects, self._num_blank, filters=filters)
        transforms = {name_of(one): work.counts for one, work in zip(self._recipe.transforms, self._works, strict=True)}
        num_left_out = sum(work.counts[name] for work in self._works for name in _LEFT_OUT)
        num_written -= num_left_out
        last = self._works[-1].counts
        num_packed = last["documents"] - sum(last[name] for name in ("documents-empty", "documents-dropped", "documents-rejected"))
        if num_written != num_packed or num_stored != last["rows"]:
            raise self._lost(
                "every document to be written, rejected or left out",
                f"{num_written:,} of which {num_packed:,} were packed into {last['rows']:,} rows, and {num_stored:,} rows stored",
            )
        num_filtered = num_left_out + filters.total()
        return Ledger(num_written, num_filtered, rejects, self._num_blank, num_stored, transforms, filters)

    def _read(self) -> Iterator[Batch]:
        extents = self._partition.extents
        reject = ignore_reject if self._route.is_again else self._reject
        for batch in self._recipe.source.read(self._roots, extents, reject, self._recipe.extras):
            self._num_blank += batch.num_blank
            self._num_samples += len(batch)
            if batch.keys:
                yield batch

    def _cut(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        cut, position, num_kept = self._route.cut, 0, 0
        for batch in batches:
            kept = cut.of(position, len(batch))
            position += len(batch)
            self._left_out[_DEDUP] += len(batch) - len(kept)
            if cut.keep is not None:
                self._left_out[_LIMIT] += max(0, num_kept + len(kept) - cut.keep)
                kept = kept[: cut.keep - num_kept]
            num_kept += len(kept)
            if kept:
                yield batch if len(kept) == len(batch) else batch.take(kept)
        self._left_out += Counter()  # counts of nothing are no counts

    def _of_split(self, batches: Iterator[Batch], number: int) -> Iterator[Batch]:
        selection = self._recipe.selection
        wanted = selection.split[number][0]
        for batch in batches:
            splits = selection.split_of(split_names(selection, batch))
            kept = [i for i, split in enumerate(splits) if split == wanted]
            self._num_elsewhere += len(batch) - len(kept)
            if kept:
                yield batch.take(kept)

    def _noted(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self.digests += map(key_digest, batch.keys)
            yield batch

    def _reject_step(self, reject: Reject) -> None:
        """The reject of a sample that all readings of the partition come by."""
        self._num_rejects += 1
        if not self._route.is_again:
            self._reject(reject)

    def _reject_read(self, reject: Reject) -> None:
        """The reject of a sample that was read."""
        self._num_rejects += 1
        self._reject(reject)

    def _lost(self, expected: str, got: str) -> ShardtoolsError:
        return ShardtoolsError(f"expected {expected}, got {got}, in partition {self._partition.index}; please report this")
