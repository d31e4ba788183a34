"""The columns of an MDS shard that no index describes, from its own header.

Source: github.com/mosaicml/streaming, streaming/base/format/mds/writer.py (0.13.0).
"""

import io
import json
from typing import Any, Protocol

import zstandard

from shardtools.errors import ShardtoolsError
from shardtools.storage import Storage

_MAX_CONFIG_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20


class _Reader(Protocol):
    def read(self, num_bytes: int, /) -> bytes: ...


def header_columns(storage: Storage, name: str, compression: str | None) -> dict[str, str]:
    """Encodings by column name; empty where they cannot be read: whoever then reads the shard is told why."""
    try:
        if compression not in (None, "zstd"):
            return {}
        with io.BufferedReader(storage.open(name), _BLOCK_BYTES) as stored:  # type: ignore[type-var]
            if compression is None:
                return _columns(stored)
            return _columns(zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True))
    except (ShardtoolsError, OSError, zstandard.ZstdError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _columns(reader: _Reader) -> dict[str, str]:
    """Passes over the offsets piece by piece: a hostile shard may declare more of them than memory holds."""
    begin, end = _config_bounds(reader.read(8))
    position = 8
    while position < begin and (block := reader.read(min(begin - position, _BLOCK_BYTES))):
        position += len(block)
    return _parsed(reader.read(end - begin))


def _config_bounds(head: bytes) -> tuple[int, int]:
    """Where the configuration lies: after the offsets, before the first sample. Raises ValueError where no sound shard has it."""
    begin, end = 8 + 4 * int.from_bytes(head[:4], "little"), int.from_bytes(head[4:8], "little")
    if not 0 < end - begin <= _MAX_CONFIG_BYTES:
        raise ValueError("the first sample's offset is not right")
    return begin, end


def _parsed(text: bytes) -> dict[str, str]:
    config: dict[str, Any] = json.loads(text)
    columns = dict(zip(config["column_names"], config["column_encodings"], strict=True))
    return columns if all(isinstance(part, str) for pair in columns.items() for part in pair) else {}
