"""Random access by index or key."""

import operator
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
from torch.utils.data import Dataset

from shardtools.errors import BadSampleError, DamagedShardError
from shardtools.loaders._catalog import Catalog
from shardtools.loaders.decoders import Decode


class MapDataset(Dataset[Any]):
    """The samples in dataset order, by index or by key, whatever rank asks. Give it to a ``DataLoader`` with a sampler."""

    def __init__(self, catalog: Catalog, decode: Decode | None) -> None:
        self._catalog = catalog
        self._decode = decode
        self._firsts = np.concatenate(([0], np.cumsum(catalog.counts)))
        self._keys: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, index: int | str) -> Any:
        """Raises IndexError, KeyError, TypeError for what is neither, and BadSampleError for what is damaged or cannot be decoded.

        The first key asked for costs a pass over all of them.
        """
        shard, row = self._place(self.index_of(index) if isinstance(index, str) else operator.index(index))
        try:
            sample = self._catalog.reader(shard)(row)
        except DamagedShardError as damage:
            name = self._catalog.name(shard)
            raise BadSampleError(f"expected a sound sample {row:,} in {name}, got one with this fault: {damage}; restore it") from damage
        if self._decode is None:
            return sample
        try:
            return self._decode(sample)
        except Exception as error:
            where = f"sample {row:,} of {self._catalog.name(shard)}"
            raise BadSampleError(
                f"expected a sample that can be decoded, got {where}: {type(error).__name__}: {error}; mend the decoder or the sample"
            ) from error

    def index_of(self, key: str) -> int:
        """Where a key stands. Memory: 16 bytes for each sample. Raises KeyError."""
        if self._keys is None:
            self._keys = self._hashed_keys()
        hashes, indices = self._keys
        digest = np.uint64(_digest(key))
        begin, end = np.searchsorted(hashes, digest, side="left"), np.searchsorted(hashes, digest, side="right")
        for index in indices[begin:end].tolist():
            if self._catalog.key(*self._place(index)) == key:
                return int(index)
        raise KeyError(key)

    def _place(self, index: int) -> tuple[int, int]:
        """The shard and row of an index; a negative one counts from the end."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"expected an index from {-count:,} to {count - 1:,}, got {index:,}")
        index %= count
        shard = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return shard, index - int(self._firsts[shard])

    def _hashed_keys(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """The digests of all keys, rising, and the index of each: uint64 and int64 [samples]."""
        key = self._catalog.key
        found = (_digest(key(shard, row)) for shard, count in enumerate(self._catalog.counts.tolist()) for row in range(count))
        hashes = np.fromiter(found, np.uint64, len(self))
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order


def _digest(key: str) -> int:
    return xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"))
