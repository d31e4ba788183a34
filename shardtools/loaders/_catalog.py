"""What there is to read, shard by shard, and single samples of it. A catalog opens a shard when a sample of it is asked for."""

import hashlib
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shardtools.datasets import Dataset, Shard
from shardtools.errors import DamagedShardError, ShardtoolsError, UsageError
from shardtools.formats import Rows
from shardtools.loaders._cache import ShardCache
from shardtools.manifest import OFFSETS_NAME

Counts = npt.NDArray[np.int64]
Read = Callable[[int], dict[str, Any]]

_LEAST_OPEN = 16


def make_room(opened: dict[int, Any], block_shards: int) -> None:
    """Closes the shards that were opened first, so that one more fits beside those of two blocks.

    Each holds a file descriptor, and counts as memory of the process as far as it was read.
    """
    while len(opened) >= max(_LEAST_OPEN, 2 * block_shards):
        del opened[next(iter(opened))]


class Catalog(Protocol):
    """Picklable; workers open shards of their own."""

    digest: str
    """Of what positions depend on."""
    counts: Counts
    """[shards]: how many samples each shard has."""
    field_encodings: dict[str, str]
    """In MDS's words, for fields that are known beforehand."""

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
        self._block_shards = block_shards
        self._cache = cache
        self._views = views
        self._shards = dataset.shards
        self._open: dict[int, Rows] = {}
        self._offsets: npt.NDArray[np.uint64] | None = None
        self._found: dict[int, Any] = {}
        """Offsets of shards whose samples were counted here."""
        self.field_encodings = {field.name: field.encoding for field in dataset.fields}
        self.counts = np.array([self._count(i) for i in range(len(self._shards))], np.int64)
        if not self.counts.sum():
            raise UsageError(f"expected a dataset with samples, got none in {dataset.uri}")
        self._has_offsets = dataset.manifest is not None and OFFSETS_NAME in dataset.manifest.sizes()
        self._offsets_at = np.concatenate(([0], np.cumsum(self.counts + 1)))
        identity = repr([(shard.name, shard.num_bytes, int(count)) for shard, count in zip(self._shards, self.counts, strict=True)])
        self.digest = hashlib.sha256(identity.encode()).hexdigest() if dataset.manifest is None else dataset.manifest.plan_digest

    def name(self, shard: int) -> str:
        return f"{self._dataset.uri}/{self._shards[shard].name}"

    def reader(self, shard: int) -> Read:
        rows = self._open.get(shard)
        return (self._opened(shard) if rows is None else rows).row

    def key(self, shard: int, row: int) -> str:
        return str(self.reader(shard)(row)["__key__"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}, "_offsets": None}

    def _count(self, i: int) -> int:
        recorded = self._shards[i].num_samples
        if recorded is not None:
            return recorded
        try:
            rows = self._shards[i].format.rows(self._mapped(self._shards[i]), None, False)
        except DamagedShardError as damage:
            raise _damaged(self.name(i), damage) from None
        self._found[i] = getattr(rows, "offsets", None)
        return len(rows)

    def _opened(self, i: int) -> Rows:
        """Raises DamagedShardError for a shard that does not hold what was promised."""
        shard = self._shards[i]
        try:
            rows = self._rows(i)
        except DamagedShardError:
            if self._is_here(shard):
                raise
            self._cache.drop(self._cache_key(shard))  # perhaps only the copy is damaged
            rows = self._rows(i)
        if shard.is_keyless:
            rows = _Numbered(rows, i)
        make_room(self._open, self._block_shards)
        self._open[i] = rows
        return rows

    def _rows(self, i: int) -> Rows:
        shard = self._shards[i]
        rows = shard.format.rows(self._mapped(shard), self._known_offsets(i), self._views)
        if len(rows) != self.counts[i]:
            raise DamagedShardError(f"expected {self.counts[i]:,} samples, got {len(rows):,}", 0)
        return rows

    def _known_offsets(self, i: int) -> Any:
        """Of the samples of one shard, from the file that holds those of all shards; None where the shard itself has to tell."""
        if i in self._found or not self._has_offsets or self._shards[i].format.index_name is not None:
            return self._found.get(i)
        if self._offsets is None:
            self._offsets = np.frombuffer(self._dataset.stored_file(OFFSETS_NAME), "<u8")
        found = self._offsets[self._offsets_at[i] : self._offsets_at[i + 1]]
        if len(found) != self.counts[i] + 1:
            raise ShardtoolsError(
                f"expected {OFFSETS_NAME} of {self._dataset.uri} to hold the places of all samples, got too few; "
                "shardtools index makes it anew"
            )
        return found

    def _is_here(self, shard: Shard) -> bool:
        """Whether it can be mapped as it is stored."""
        return shard.compression is None and self._dataset.storage.is_local

    def _mapped(self, shard: Shard) -> mmap.mmap | bytes:
        """The uncompressed shard in memory, read on demand; from the cache where it is not on this machine as it is."""
        view = self._stored(shard) if self._is_here(shard) else self._cached(shard)
        found = view.obj
        return found if isinstance(found, mmap.mmap) else bytes(view)

    def _stored(self, shard: Shard) -> memoryview:
        view = self._dataset.stored_file(shard.name)
        if shard.num_bytes is not None and len(view) != shard.num_bytes:
            raise DamagedShardError(f"expected a shard of {shard.num_bytes:,} bytes, got {len(view):,}", 0)
        return view

    def _cached(self, shard: Shard) -> memoryview:
        def make(path: str) -> None:
            if shard.compression is None:
                self._dataset.storage.fetch(shard.name, path)
                return
            with open(path, "wb") as out:
                self._dataset.unpack_into(out, shard, self._stored(shard))

        with self._cache.open(self._cache_key(shard), make) as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def _cache_key(self, shard: Shard) -> str:
        storage = self._dataset.storage
        # Another shard may come to have the same name and length.
        return f"{storage.uri}\0{shard.name}\0{shard.num_bytes}\0{storage.modified_ns(shard.name)}"


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


def _damaged(name: str, damage: DamagedShardError) -> ShardtoolsError:
    return ShardtoolsError(f"expected sound shards, got {name} with this fault: {damage}; shardtools verify names all of them")
