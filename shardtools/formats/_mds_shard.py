"""The frame of one MDS shard file: header, offsets, compression, hashes."""

import hashlib
import json
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
import xxhash
import zstandard

from shardtools.errors import DamagedShardError
from shardtools.formats import MDS_CONFIG_KEYS, ShardFacts, _pieces
from shardtools.storage import ObjectWriter, one_sentence

_BLOCK_BYTES = 1 << 20
# The header needs the number of samples, so a shard waits until it is complete: in memory up to here, then in a file.
_SPOOL_BYTES = 64 << 20


@dataclass(frozen=True)
class ShardHeader:
    """What every shard of a dataset begins with, apart from its offsets."""

    config: dict[str, Any]

    @property
    def config_bytes(self) -> bytes:
        return json.dumps(self.config, sort_keys=True).encode()

    @property
    def base_bytes(self) -> int:
        """Length of a shard with no samples."""
        return 8 + len(self.config_bytes)


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def _new_hash(name: str) -> _Hash:
    return xxhash.xxh64() if name == "xxh64" else hashlib.new(name)


class MdsShardFile:
    """Collects samples, then writes offsets and data in one go. Memory: up to 64 MiB, beyond that an unnamed file."""

    def __init__(self, header: ShardHeader, output: ObjectWriter) -> None:
        self._header = header
        self._output = output
        self._costs = array("Q")
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._has_large = False
        self._spool_folder = output.spool_folder
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None

    def append(self, pieces: Sequence[bytes], costs: Sequence[int]) -> None:
        self._costs.extend(costs)
        self._pending += pieces
        self._pending_bytes += sum(costs)
        self._has_large = self._has_large or max(costs, default=0) >= _pieces.WRITE_BYTES
        if self._pending_bytes >= _BLOCK_BYTES:
            self._flush()

    def finish(self) -> ShardFacts:
        self._flush()
        num_samples = len(self._costs)
        config = self._header.config_bytes
        first = 4 + 4 * (num_samples + 1) + len(config)
        begins = np.full(num_samples + 1, first, np.uint64)
        begins[1:] += np.cumsum(np.array(self._costs, np.uint64) - np.uint64(4))
        offsets = array("Q", begins.tobytes())
        head = num_samples.to_bytes(4, "little") + begins.astype("<u4").tobytes() + config
        sink = _Sink(self._header.config, offsets[-1], self._output)
        sink.write(head)
        for block in self._data():
            sink.write(block)
        return sink.finish(offsets)

    def abort(self) -> None:
        # Closing writes what is left, and fails again where writing failed.
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
        self._output.abort()

    def _flush(self) -> None:
        # Pieces are many times as many as samples: they are looked at only where one may be large.
        self._held += _pieces.joined(self._pending) if self._has_large else [b"".join(self._pending)]
        self._held_bytes += self._pending_bytes
        self._pending = []
        self._pending_bytes = 0
        self._has_large = False
        if self._file is None and self._held_bytes <= _SPOOL_BYTES:
            return
        with one_sentence("write", self._spool_folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._spool_folder)  # noqa: SIM115 closed by finish or abort
            for block in self._held:
                self._file.write(block)
        self._held = []

    def _data(self) -> Iterator[bytes]:
        """All samples; what is held is let go on the way."""
        if self._file is not None:
            with one_sentence("read", self._spool_folder):
                self._file.seek(0)
                while block := self._file.read(_BLOCK_BYTES):
                    yield block
                self._file.close()
        self._held.reverse()
        while self._held:
            yield self._held.pop()


class _Sink:
    """Hashes and compresses on the way to the output."""

    def __init__(self, config: dict[str, Any], raw_bytes: int, output: ObjectWriter) -> None:
        self._raw_bytes = raw_bytes
        self._output = output
        self._sha256 = hashlib.sha256()
        self._num_bytes = 0
        self._raw_hashes = {name: _new_hash(name) for name in config["hashes"]}
        self._zip_hashes = {name: _new_hash(name) for name in config["hashes"]}
        level = int((config["compression"] or "zstd").partition(":")[2] or 3)
        self._compressor = zstandard.ZstdCompressor(level).compressobj(raw_bytes) if config["compression"] else None

    def write(self, data: bytes) -> None:
        for digest in self._raw_hashes.values():
            digest.update(data)
        self._store(self._compressor.compress(data) if self._compressor else data)

    def finish(self, offsets: "array[int]") -> ShardFacts:
        if self._compressor:
            self._store(self._compressor.flush())
        self._output.finish()
        raw = {"bytes": self._raw_bytes, "hashes": {name: digest.hexdigest() for name, digest in self._raw_hashes.items()}}
        compressed = None
        if self._compressor:
            compressed = {"bytes": self._num_bytes, "hashes": {name: digest.hexdigest() for name, digest in self._zip_hashes.items()}}
        details = {"raw_data": raw, "zip_data": compressed}
        return ShardFacts(self._num_bytes, self._sha256.hexdigest(), len(offsets) - 1, offsets, details)

    def _store(self, data: bytes) -> None:
        self._num_bytes += len(data)
        self._sha256.update(data)
        if self._compressor:
            for digest in self._zip_hashes.values():
                digest.update(data)
        self._output.write(data)


def parse_header(shard: memoryview) -> tuple[ShardHeader, npt.NDArray[np.uint32]]:
    """The header and the u32 [n + 1] offsets of a shard. Raises DamagedShardError for anything a sound shard cannot have."""
    if len(shard) < 8:
        raise DamagedShardError(f"expected an MDS header, got a file of {len(shard)} bytes", 0)
    num_samples = int.from_bytes(shard[:4], "little")
    table_end = 4 + 4 * (num_samples + 1)
    if table_end > len(shard):
        raise DamagedShardError(f"the offsets of {num_samples} samples reach past the end of the file", 0)
    offsets = np.frombuffer(shard[4:table_end], "<u4")
    first = int(offsets[0])
    if not table_end <= first <= len(shard):
        raise DamagedShardError("the first sample's offset lies outside the file", 4)
    if int(offsets[-1]) != len(shard):
        raise DamagedShardError(f"the offsets end at {offsets[-1]}, the file at {len(shard)}", table_end - 4)
    if (offsets[1:] < offsets[:-1]).any():
        raise DamagedShardError("the offsets do not rise", 4)
    config = _parse_config(bytes(shard[table_end:first]), table_end)
    return ShardHeader(config), offsets


def _parse_config(text: bytes, offset: int) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedShardError("the configuration is not JSON", offset) from None
    if not isinstance(config, dict) or sorted(config) != list(MDS_CONFIG_KEYS):
        raise DamagedShardError("the configuration does not have the keys of an MDS shard", offset)
    columns = [config[name] for name in ("column_names", "column_encodings", "column_sizes")]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns) or not columns[0]:
        raise DamagedShardError("the configuration's columns are not lists of one length", offset)
    if not all(isinstance(text, str) for text in [*columns[0], *columns[1]]) or len(set(columns[0])) < len(columns[0]):
        raise DamagedShardError("the configuration's column names and encodings are not texts, each name once", offset)
    if not all(size is None or (type(size) is int and size >= 0) for size in columns[2]):
        raise DamagedShardError("the configuration's column sizes are not sizes", offset)
    return config


def split_row(shard: memoryview, begin: int, end: int, names: Sequence[str], sizes: Sequence[int | None]) -> dict[str, memoryview]:
    """The bytes of each column of the sample at ``begin``. Raises DamagedShardError where its lengths do not add up."""
    num_variable = sum(size is None for size in sizes)
    position = begin + 4 * num_variable
    if position > end:
        raise DamagedShardError("a sample is too short for its column lengths", begin)
    lengths = iter(np.frombuffer(shard[begin:position], "<u4").tolist())
    values = {}
    for name, fixed in zip(names, sizes, strict=True):
        length = next(lengths) if fixed is None else fixed
        values[name] = shard[position : min(position + length, end)]
        position += length
    if position != end:
        raise DamagedShardError("a sample's column lengths do not add up to its length", begin)
    return values
