"""One partition's samples on their way from the source through the transforms, and what became of each that was read."""

from collections import Counter
from collections.abc import Iterator, Sequence

from shardtools.duplicates import key_digest
from shardtools.errors import ShardtoolsError
from shardtools.manifest import Ledger
from shardtools.plan import Partition, Recipe
from shardtools.plugins import name_of
from shardtools.sample import Batch, Reject, RejectSink
from shardtools.transforms import PartitionWork

_LEFT_OUT = ("documents-empty", "documents-dropped", "chats-dropped")
"""Counts of transforms that say how many samples they left out on purpose."""


class Reading:
    """Reads a partition once. ``digests`` are those of the keys that were read."""

    def __init__(self, recipe: Recipe, roots: Sequence[str], partition: Partition, reject: RejectSink) -> None:
        self._recipe = recipe
        self._roots = roots
        self._partition = partition
        self._reject = reject
        self._num_samples = self._num_blank = self._num_rejects = 0
        self._works = [PartitionWork(partition.index, self._reject_read) for _ in recipe.transforms]
        self.digests: list[bytes] = []

    def batches(self) -> Iterator[Batch]:
        """What is to be stored, in order."""
        batches = self._read()
        for transform, work in zip(self._recipe.transforms, self._works, strict=True):
            batches = transform.apply(batches, work)
        return batches

    def ledger(self, num_stored: int, rejects: Counter[str]) -> Ledger:
        """Where every sample went. Raises ShardtoolsError where the transforms lost one."""
        if not self._works:
            return Ledger(num_stored, 0, rejects, self._num_blank)
        transforms = {name_of(one): work.counts for one, work in zip(self._recipe.transforms, self._works, strict=True)}
        num_filtered = sum(work.counts[name] for work in self._works for name in _LEFT_OUT)
        num_written = self._num_samples - self._num_rejects - num_filtered
        last = self._works[-1].counts
        num_packed = last["documents"] - sum(last[name] for name in ("documents-empty", "documents-dropped", "documents-rejected"))
        if num_written != num_packed or num_stored != last["rows"]:
            raise ShardtoolsError(
                f"expected every document to be written, rejected or left out, got {num_written:,} of which {num_packed:,} were packed "
                f"into {last['rows']:,} rows, and {num_stored:,} rows stored, in partition {self._partition.index}; please report this"
            )
        return Ledger(num_written, num_filtered, rejects, self._num_blank, num_stored, transforms)

    def _read(self) -> Iterator[Batch]:
        for batch in self._recipe.source.read(self._roots, self._partition.extents, self._reject):
            self._num_blank += batch.num_blank
            self._num_samples += len(batch)
            if self._works:
                self.digests += map(key_digest, batch.keys)
            if batch.keys:
                yield batch

    def _reject_read(self, reject: Reject) -> None:
        """A transform's reject: of a sample that was read."""
        self._num_rejects += 1
        self._reject(reject)
