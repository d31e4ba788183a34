"""Single rows of an MDS shard, for readers that jump."""

import struct
from mmap import mmap
from typing import Any

from shardtools.errors import DamagedShardError
from shardtools.formats._mds_shard import parse_header

_BOUNDS = struct.Struct("<2I")


class MdsAccess:
    """The rows of one mapped, uncompressed shard. ``key_column`` is the column that holds the keys, if there is one."""

    def __init__(self, shard: mmap | bytes | memoryview, key_column: str | None) -> None:
        header, offsets = parse_header(memoryview(shard))
        self._shard = shard
        self._num_rows = len(offsets) - 1
        names, sizes = header.config["column_names"], header.config["column_sizes"]
        self._columns = [("__key__" if name == key_column else name, size) for name, size in zip(names, sizes, strict=True)]
        self._has_key = key_column in names
        self._lengths = struct.Struct(f"<{sizes.count(None)}I")

    def __len__(self) -> int:
        return self._num_rows

    def row(self, i: int) -> dict[str, Any]:
        """``__key__`` (str) and the columns' stored values, slices of the shard. Raises DamagedShardError, IndexError."""
        if not 0 <= i < self._num_rows:
            raise IndexError(f"expected a row from 0 to below {self._num_rows:,}, got {i:,}")
        shard, lengths = self._shard, self._lengths
        begin, end = _BOUNDS.unpack_from(shard, 4 + 4 * i)
        place = begin + lengths.size
        if place > end:
            raise DamagedShardError("a row is shorter than the lengths it begins with", begin)
        variable = iter(lengths.unpack_from(shard, begin))
        sample: dict[str, Any] = {}
        for name, size in self._columns:
            after = place + (next(variable) if size is None else size)
            sample[name] = shard[place:after]
            place = after
        if place != end:
            raise DamagedShardError(f"the values of a row end at byte {place:,}, the row itself at {end:,}", begin)
        sample["__key__"] = str(sample["__key__"], "utf-8", "surrogateescape") if self._has_key else f"{i:08d}"
        return sample
