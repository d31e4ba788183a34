"""The bytes of a dataset's shards in memory, wherever they are stored."""

import mmap
import os

from shardtools.datasets import Dataset, Shard
from shardtools.errors import DamagedShardError
from shardtools.loaders._ahead import Note
from shardtools.loaders._cache import ShardCache
from shardtools.manifest import OFFSETS_NAME

_USUAL_BYTES = 64 << 20
"""Of a shard whose length nobody knows."""


class ShardFiles:
    """Shards are mapped where they lie on this machine as they are, else from a copy in the cache. Picklable."""

    def __init__(self, dataset: Dataset, cache: ShardCache) -> None:
        self._dataset = dataset
        self._cache = cache
        self.is_remote = not dataset.storage.is_local
        self._recorded: dict[str, str] = {}
        """Of a remote dataset, what its manifest says each file holds."""
        self._listed: dict[str, str] = {}
        """Of a remote one without, the versions that one listing shows."""
        manifest = dataset.manifest
        if self.is_remote and manifest is not None:
            self._recorded = {shard.name: shard.sha256 for shard in manifest.shards} | {file.name: file.sha256 for file in manifest.files}
        elif self.is_remote:
            self._listed = self._listed_versions()

    def mapped(self, shard: Shard) -> mmap.mmap | bytes:
        """The uncompressed shard, read on demand. Raises DamagedShardError where it has not the length it should, StorageError."""
        if self.is_here(shard):
            return _mapping(self._stored(shard))
        with self._cache.open(self._key(shard), lambda path: self._make(shard, path)) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def fetch(self, shard: Shard, note: Note) -> None:
        """Has it in the cache, if no other process is about to. Tells which path is written to. Raises what ``mapped`` does."""

        def make(path: str) -> None:
            note(path)
            self._make(shard, path)

        self._cache.make_ahead(self._key(shard), make)

    def forget(self, shard: Shard) -> bool:
        """Whether there was a copy that may be what is damaged; the next look makes it anew."""
        if self.is_here(shard):
            return False
        self._cache.drop(self._key(shard))
        return True

    def offsets(self) -> mmap.mmap | bytes:
        """The file that holds the places of all samples."""
        if not self.is_remote:
            return _mapping(self._dataset.stored_file(OFFSETS_NAME))
        key = f"{self._dataset.storage.uri}\0{OFFSETS_NAME}\0{self._recorded[OFFSETS_NAME]}"
        with self._cache.open(key, lambda path: self._dataset.storage.fetch(OFFSETS_NAME, path)) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def num_bytes(self, shard: Shard) -> int:
        """What a shard takes in memory or in the cache, as far as is known."""
        unpacked = 0 if shard.entry is None else shard.entry.raw.num_bytes
        return max(unpacked, shard.num_bytes or 0) or _USUAL_BYTES

    def is_here(self, shard: Shard) -> bool:
        """Whether it can be mapped as it is stored."""
        return shard.compression is None and not self.is_remote

    def _make(self, shard: Shard, path: str) -> None:
        if shard.compression is not None:
            with open(path, "wb") as out:
                self._dataset.unpack_into(out, shard, self._stored(shard))
            return
        self._dataset.storage.fetch(shard.name, path, self._listed.get(shard.name, ""))
        _demand_length(shard, os.path.getsize(path))

    def _stored(self, shard: Shard) -> memoryview:
        view = self._dataset.stored(shard) if self.is_remote else self._dataset.stored_file(shard.name)
        _demand_length(shard, len(view))
        return view

    def _key(self, shard: Shard) -> str:
        """Another shard may come to have the same name and length, so it names the version, too."""
        storage = self._dataset.storage
        version = self._recorded.get(shard.name) or self._listed.get(shard.name)
        if version is None:
            found = storage.entry(shard.name)
            version = "" if found is None else found.version
            if self.is_remote:
                self._listed[shard.name] = version  # or there would be a request for it every time
        return f"{storage.uri}\0{shard.name}\0{shard.num_bytes}\0{version}"

    def _listed_versions(self) -> dict[str, str]:
        listing = self._dataset.listing()
        found = {shard.name: listing.entry(shard.name) for shard in self._dataset.shards}
        return {name: entry.version for name, entry in found.items() if entry is not None}


def _mapping(view: memoryview) -> mmap.mmap | bytes:
    found = view.obj
    return found if isinstance(found, mmap.mmap) else bytes(view)


def _demand_length(shard: Shard, num_bytes: int) -> None:
    if shard.num_bytes is not None and num_bytes != shard.num_bytes:
        raise DamagedShardError(f"expected a shard of {shard.num_bytes:,} bytes, got {num_bytes:,}", 0)
