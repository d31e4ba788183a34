"""What there is to read, shard by shard, and single samples of it. A catalog opens a shard when a sample of it is asked for."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shardtools.datasets import Dataset
from shardtools.errors import DamagedShardError, ShardtoolsError, UsageError
from shardtools.formats import Rows
from shardtools.loaders._ahead import Note, ReadAhead
from shardtools.loaders._cache import ShardCache
from shardtools.loaders._shard_files import ShardFiles
from shardtools.manifest import OFFSETS_NAME

Counts = npt.NDArray[np.int64]
Read = Callable[[int], dict[str, Any]]

_LEAST_OPEN = 16


def make_room(opened: dict[int, Any], limit: int) -> None:
    """Closes the shards that were opened first, so that one more fits among at most ``limit``.

    Each holds a file descriptor, its space on the disk also where the cache evicts it, and counts as memory of the process as far as
    it was read.
    """
    while len(opened) >= limit:
        del opened[next(iter(opened))]


def most_open(block_shards: int, cache: ShardCache, largest_bytes: int) -> int:
    """How many shards may be open: those of two blocks, and 16 where half of the cache holds as many."""
    return max(2 * block_shards, min(_LEAST_OPEN, cache.limit_bytes // (2 * max(largest_bytes, 1))))


class Catalog(Protocol):
    """Picklable; workers open shards of their own."""

    digest: str
    """Of what positions depend on."""
    counts: Counts
    """[shards]: how many samples each shard has."""
    field_encodings: dict[str, str]
    """In MDS's words, for fields that are known beforehand."""
    is_remote: bool
    """Its shards have to be fetched."""

    def read_ahead(self, blocks: Sequence[Sequence[int]]) -> AbstractContextManager[None]:
        """Inside, remote shards are fetched before their turn: blocks in this order, those of a block in any."""

    def name(self, shard: int) -> str:
        """For messages."""

    def reader(self, shard: int) -> Read:
        """Gives samples of a shard by row: ``__key__`` and the stored bytes of the fields. Both raise DamagedShardError, StorageError."""

    def key(self, shard: int, row: int) -> str:
        """The key of one sample."""


class Shards:
    """The shards of a dataset, ours or foreign. Where no count is recorded, as for foreign tars, all headers are read once.

    ``views``: values are memoryviews of the mapped shards.
    """

    def __init__(self, dataset: Dataset, cache: ShardCache, block_shards: int, views: bool) -> None:
        self._dataset = dataset
        self._views = views
        self._shards = dataset.shards
        self._files = ShardFiles(dataset, cache)
        self._ahead: ReadAhead | None = None
        self.is_remote = self._files.is_remote
        self._ahead_bytes = cache.ahead_bytes if self.is_remote else 0
        copied = [self._files.num_bytes(shard) for shard in self._shards if not self._files.is_here(shard)]
        self._most_open = most_open(block_shards, cache, max(copied, default=0))
        self._open: dict[int, Rows] = {}
        self._damaged: dict[int, DamagedShardError] = {}
        """What this pass found: a shard of a thousand samples would else be fetched a thousand times."""
        self._offsets: npt.NDArray[np.uint64] | None = None
        self._found: dict[int, Any] = {}
        """Offsets of shards whose samples were counted here."""
        self._has_offsets = dataset.manifest is not None and OFFSETS_NAME in dataset.manifest.sizes()
        self.field_encodings = {field.name: field.encoding for field in dataset.fields}
        with self.read_ahead([[i] for i, shard in enumerate(self._shards) if shard.num_samples is None]):
            self.counts = np.array([self._count(i) for i in range(len(self._shards))], np.int64)
        if not self.counts.sum():
            raise UsageError(f"expected a dataset with samples, got none in {dataset.uri}")
        self._offsets_at = _offsets_at(dataset)
        self.digest = _digest(dataset, self.counts)

    def name(self, shard: int) -> str:
        return f"{self._dataset.uri}/{self._shards[shard].name}"

    def reader(self, shard: int) -> Read:
        rows = self._open.get(shard)
        return (self._opened(shard) if rows is None else rows).row

    def key(self, shard: int, row: int) -> str:
        return str(self.reader(shard)(row)["__key__"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}, "_offsets": None, "_ahead": None}

    @contextmanager
    def read_ahead(self, blocks: Sequence[Sequence[int]]) -> Iterator[None]:
        self._damaged.clear()
        num_bytes = {i: self._files.num_bytes(self._shards[i]) for block in blocks for i in block}
        self._ahead = ahead = ReadAhead(blocks, num_bytes, self._fetch, self._ahead_bytes)
        try:
            yield
        finally:
            ahead.close()

    def _fetch(self, i: int, note: Note) -> None:
        self._files.fetch(self._shards[i], note)

    def _count(self, i: int) -> int:
        recorded = self._shards[i].num_samples
        if recorded is not None:
            return recorded
        try:
            rows = self._rows(i, False)
        except DamagedShardError as damage:
            raise _damaged(self.name(i), damage) from None
        self._found[i] = getattr(rows, "offsets", None)
        return len(rows)

    def _opened(self, i: int) -> Rows:
        """Raises DamagedShardError for a shard that does not hold what was promised."""
        if i in self._damaged:
            raise DamagedShardError(*self._damaged[i].args)
        try:
            rows = self._counted_rows(i)
        except DamagedShardError as damage:
            if self.is_remote:
                self._damaged[i] = damage
            raise
        if self._shards[i].is_keyless:
            rows = _Numbered(rows, self._shards[i].index)
        make_room(self._open, self._most_open)
        self._open[i] = rows
        return rows

    def _counted_rows(self, i: int) -> Rows:
        try:
            return self._as_promised(i)
        except DamagedShardError:
            if not self._files.forget(self._shards[i]):
                raise
            return self._as_promised(i)

    def _as_promised(self, i: int) -> Rows:
        rows = self._rows(i, self._views)
        if len(rows) != self.counts[i]:
            raise DamagedShardError(f"expected {self.counts[i]:,} samples, got {len(rows):,}", 0)
        return rows

    def _rows(self, i: int, views: bool) -> Rows:
        if self._ahead is not None:
            self._ahead.wait_for(i)
        rows = self._shards[i].format.rows(self._files.mapped(self._shards[i]), self._known_offsets(i), views)
        if self._ahead is not None:
            self._ahead.begin(i)
        return rows

    def _known_offsets(self, i: int) -> Any:
        """Of the samples of one shard, from the file that holds those of all shards; None where the shard itself has to tell."""
        if i in self._found or not self._has_offsets or self._shards[i].format.index_name is not None:
            return self._found.get(i)
        if self._offsets is None:
            self._offsets = np.frombuffer(self._files.offsets(), "<u8")
        begin = self._offsets_at[self._shards[i].index]
        found = self._offsets[begin : begin + self.counts[i] + 1]
        if len(found) != self.counts[i] + 1:
            raise ShardtoolsError(
                f"expected {OFFSETS_NAME} of {self._dataset.uri} to hold the places of all samples, got too few; "
                "shardtools index makes it anew"
            )
        return found


@dataclass(frozen=True)
class _Numbered:
    """Rows of a shard that stores no keys: they are numbered within the dataset."""

    rows: Rows
    shard: int

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, i: int) -> dict[str, Any]:
        sample = self.rows.row(i)
        sample["__key__"] = f"{self.shard:05d}/{sample['__key__']}"
        return sample


def _digest(dataset: Dataset, counts: Counts) -> str:
    if dataset.manifest is not None and dataset.split is None:
        return dataset.manifest.plan_digest
    identity = repr([(shard.name, shard.num_bytes, int(count)) for shard, count in zip(dataset.shards, counts, strict=True)])
    if dataset.manifest is not None:
        identity = f"{dataset.manifest.plan_digest} {dataset.split}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _offsets_at(dataset: Dataset) -> list[int]:
    """[shards of the whole dataset]: where those of each begin in the file of all offsets, where there is one."""
    shards = () if dataset.manifest is None else dataset.manifest.shards
    return list(accumulate((shard.num_samples + 1 for shard in shards), initial=0))


def _damaged(name: str, damage: DamagedShardError) -> ShardtoolsError:
    return ShardtoolsError(f"expected sound shards, got {name} with this fault: {damage}; shardtools verify names all of them")
