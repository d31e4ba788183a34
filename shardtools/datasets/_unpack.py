"""Shard files as memory: held, or mapped; in an unnamed file first where they are compressed, or large and elsewhere."""

import gzip
import io
import mmap
import tempfile
import zlib
from contextlib import suppress
from typing import IO, Protocol

import zstandard

from shardtools.errors import DamagedShardError, StorageError, UsageError
from shardtools.formats import MAX_MDS_BYTES
from shardtools.storage import Storage
from shardtools.units import format_bytes, plural

MAX_HELD_BYTES = 256 << 20
"""Larger files are mapped, or copied here and then mapped."""
_BLOCK_BYTES = 1 << 20
# What grows more than this is taken for a bomb. A gzip stream does not say how long it is, and an index may say anything.
_MAX_GZIP_RATIO = 200
_MAX_ZSTD_RATIO = 2000
_MIN_LIMIT_BYTES = 64 << 20


class FileMap(mmap.mmap):
    """A whole file, read on demand."""


class _Reader(Protocol):
    def read(self, num_bytes: int, /) -> bytes: ...


def held(storage: Storage, name: str) -> memoryview:
    """The file's bytes; nothing that happens to the file later can be seen in them, unless it is too large to be held.

    Raises what ``mapped`` does, and DamagedShardError where the file becomes shorter meanwhile.
    """
    num_bytes = storage.num_bytes(name)
    if not num_bytes or num_bytes > MAX_HELD_BYTES:
        return mapped(storage, name)
    view = room(num_bytes)
    try:
        storage.read_into(name, view)
    except StorageError:
        num_left = storage.num_bytes(name)
        if num_left is not None and num_left < num_bytes:
            raise DamagedShardError("the file became shorter while it was read", num_left) from None
        raise
    return view.toreadonly()


def room(num_bytes: int) -> memoryview:
    """So many zeros to be written over; slices of what it views are bytes."""
    buffer = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # only some systems have them
        # Pages of 4 KiB, cleared one by one, would take as long as the bytes.
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(buffer)


def mapped(storage: Storage, name: str) -> memoryview:
    """The file's bytes, read on demand: a file that is cut meanwhile ends the process. From elsewhere they are copied first.

    Raises StorageError if it is not there or is no regular file.
    """
    if storage.num_bytes(name) is None:
        raise StorageError(f"expected the file {name} in {storage.uri}, got none; restore it")
    if not storage.is_local:
        return _copied(storage, name)
    path = storage.local_path(name)
    try:
        with open(path, "rb") as file:
            return map_file(file)
    except OSError as error:
        raise StorageError(f"could not read {path}: {error.strerror}; check its permissions and the disk") from error


def _copied(storage: Storage, name: str) -> memoryview:
    with storage.open(name) as source, tempfile.TemporaryFile() as file:
        while block := source.read(_BLOCK_BYTES):
            write_temporary(file, block)
        return map_file(file)


def unpacked(name: str, compression: str | None, stored: memoryview, raw_bytes: int | None) -> memoryview:
    """The uncompressed bytes, mapped; at most ``raw_bytes``, where known, are ever written to disk."""
    if compression is None:
        return stored
    with tempfile.TemporaryFile() as file:
        unpack_into(file, name, compression, stored, raw_bytes)
        return map_file(file)


def unpack_into(file: IO[bytes], name: str, compression: str, stored: memoryview, raw_bytes: int | None) -> None:
    """Write the uncompressed bytes; at most ``raw_bytes``, where known. Raises what ``Dataset.unpacked`` does."""
    if compression == "gzip":
        limit = max(_MIN_LIMIT_BYTES, len(stored) * _MAX_GZIP_RATIO)
        _copy(gzip.GzipFile(fileobj=_File(stored)), file, limit, f"a gzip stream grows to at most {format_bytes(limit)}")
        return
    if compression.partition(":")[0] != "zstd":
        raise UsageError(
            f"expected shards that are uncompressed or compressed with zstd, got {name} with {compression!r}, which is not supported; "
            "unpack the shards with StreamingDataset first"
        )
    limit = MAX_MDS_BYTES if raw_bytes is None else min(raw_bytes, MAX_MDS_BYTES)
    promise = f"the index says the shard unpacks to {plural(limit, 'byte')}"
    most = max(_MIN_LIMIT_BYTES, len(stored) * _MAX_ZSTD_RATIO)
    if limit > most:
        limit, promise = most, f"a zstd stream grows to at most {format_bytes(most)}"
    reader = zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True)
    num_bytes = _copy(reader, file, limit, promise)
    if raw_bytes is not None and num_bytes != raw_bytes:
        raise DamagedShardError(f"the compressed stream holds {plural(num_bytes, 'byte')}, the index says {raw_bytes}", num_bytes)


class _File(io.RawIOBase):
    """A readable file over a memoryview, without a copy of it."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        taken = self._data[self._position : self._position + len(buffer)]
        buffer[: len(taken)] = taken
        self._position += len(taken)
        return len(taken)


def _copy(reader: _Reader, file: IO[bytes], limit: int, promise: str) -> int:
    """How many bytes came out of the reader."""
    num_bytes = 0
    while True:
        try:
            block = reader.read(_BLOCK_BYTES)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            raise DamagedShardError(f"the compressed stream cannot be read on: {error}", num_bytes) from None
        if not block:
            return num_bytes
        num_bytes += len(block)
        if num_bytes > limit:
            raise DamagedShardError(f"{promise}, but more comes out of it", limit)
        write_temporary(file, block)


def write_temporary(file: IO[bytes], block: bytes) -> None:
    """Raises StorageError where there is no room left."""
    try:
        file.write(block)
        file.flush()
    except OSError as error:
        place = tempfile.gettempdir()
        raise StorageError(f"could not write a shard to {place}: {error.strerror}; free some space or set TMPDIR") from error


def map_file(file: IO[bytes]) -> memoryview:
    """Its bytes, read on demand, also after it is closed."""
    file.seek(0, io.SEEK_END)
    if file.tell() == 0:
        return memoryview(b"")
    return memoryview(FileMap(file.fileno(), 0, access=mmap.ACCESS_READ))


def let_go(view: memoryview) -> None:
    """Give the memory of a mapped file back to the system; what is looked at again is read again."""
    if isinstance(view.obj, FileMap) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)
