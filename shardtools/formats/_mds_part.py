"""Some rows of an MDS shard as a shard of their own, of which the others are not read."""

from collections.abc import Callable

import numpy as np

from shardtools.errors import DamagedShardError

Read = Callable[[int, memoryview], None]
"""Fills a buffer with the (uncompressed) shard's bytes from a position on."""
Room = Callable[[int], memoryview]
"""A new buffer of so many bytes."""
_MAX_CONFIG_BYTES = 16 << 20


def rows_as_shard(read: Read, room: Room, num_bytes: int, num_rows: int, rows: range) -> tuple[memoryview, int]:
    """Neighbouring rows of a shard of ``num_bytes`` that is said to have ``num_rows``, and how much further on they lie there.

    Nothing that happens to the file later can be seen in them. Memory: those rows, and the offsets of all.
    Raises DamagedShardError.
    """
    begin, end = rows.start, rows.stop
    fixed = _bytes(read, 0, min(8, num_bytes))
    stored_rows, first = int.from_bytes(fixed[:4], "little"), int.from_bytes(fixed[4:], "little")
    if stored_rows != num_rows:
        raise DamagedShardError(f"expected {num_rows} rows, as its index says, got a header of {stored_rows}", 0)
    table_end = 4 + 4 * (num_rows + 1)
    if not table_end <= first <= min(num_bytes, table_end + _MAX_CONFIG_BYTES):
        raise DamagedShardError("the first row's offset is not right", 4)
    head = _bytes(read, 4, first)
    offsets = np.frombuffer(head[: table_end - 4], "<u4").astype(np.int64)
    low, high = int(offsets[begin]), int(offsets[end])
    if offsets[-1] != num_bytes or (offsets[1:] < offsets[:-1]).any():
        raise DamagedShardError(f"the offsets do not rise to the {num_bytes} bytes of the file", 4)
    config = head[table_end - 4 :]
    base = 4 + 4 * (end - begin + 1) + len(config)
    table = np.concatenate([[end - begin], offsets[begin : end + 1] - low + base]).astype("<u4").tobytes()
    whole = room(base + high - low)
    whole[:base] = table + config
    if high > low:
        read(low, whole[base:])
    return whole, low - base


def _bytes(read: Read, begin: int, end: int) -> bytes:
    buffer = bytearray(end - begin)
    read(begin, memoryview(buffer))
    return bytes(buffer)
