"""Single rows of an MDS shard, for readers that jump."""

import struct
from mmap import mmap
from typing import Any

import numpy as np

from shardtools.errors import DamagedShardError
from shardtools.formats._mds_shard import parse_header


class MdsAccess:
    """The rows of one mapped, uncompressed shard. ``key_column`` is the column that holds the keys, if there is one."""

    def __init__(self, shard: mmap | bytes, key_column: str | None) -> None:
        header, offsets = parse_header(memoryview(shard))
        self._shard = shard
        # Rows jump by two of them; a list would be eight times as large.
        self._offsets = np.asarray(offsets)
        names, sizes = header.config["column_names"], header.config["column_sizes"]
        self._names = ["__key__" if name == key_column else name for name in names]
        self._has_key = key_column in names
        self._sizes: list[Any] = list(sizes)
        self._variable = [j for j, size in enumerate(sizes) if size is None]
        self._heads = struct.Struct(f"<{len(self._variable)}I")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def row(self, i: int) -> dict[str, Any]:
        """``__key__`` (str) and the columns' stored bytes. Raises DamagedShardError."""
        shard, begin, end = self._shard, int(self._offsets[i]), int(self._offsets[i + 1])
        place = begin + self._heads.size
        if place > end:
            raise DamagedShardError("a row is shorter than the sizes it begins with", begin)
        sizes = self._sizes
        for j, size in zip(self._variable, self._heads.unpack_from(shard, begin), strict=True):
            sizes[j] = size
        sample: dict[str, Any] = {}
        for name, size in zip(self._names, sizes, strict=True):
            sample[name] = shard[place : place + size]
            place += size
        if place != end:
            raise DamagedShardError(f"the values of a row end at byte {place:,}, the row itself at {end:,}", begin)
        sample["__key__"] = sample["__key__"].decode("utf-8", "surrogateescape") if self._has_key else f"{i:08d}"
        return sample
