"""Files of lines as streams of text: opened as they were planned, decompressed in pieces of bounded length."""

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import zstandard

from shardtools.errors import StorageError
from shardtools.sources._inputs import is_uri
from shardtools.sources._planned import shown
from shardtools.storage import one_sentence, open_storage

# Small, since four bytes of zstd may stand for 128 KiB of text, and the output for one input comes out whole: at most 32 MiB.
_COMPRESSED_BYTES = 1 << 10
_GZIP_WITH_HEADER = 31
_REST_BYTES = 64 << 10
"""Read at first beyond a window, where its last line ends: seldom more is needed, and what is read is cut into lines."""
# A FIFO that took a planned file's place would block an open without O_NONBLOCK for ever.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class DamagedStreamError(Exception):
    """A compressed stream cannot be read on; every whole line before was delivered."""

    def __init__(self, offset: int, cause: str, needs_memory: bool = False) -> None:
        super().__init__(offset, cause)
        self.offset = offset
        """Length of the text that came out."""
        self.reason = "window-too-large" if needs_memory else "damaged-stream"
        self.sentence = f"expected a sound compressed stream, got one damaged after {offset} bytes of text: {cause}; restore it"
        if needs_memory:
            self.sentence = (
                f"expected a zstd frame with a window of at most 128 MiB, which every reader takes, got a larger one after {offset} "
                "bytes of text; recompress the file without --long or --ultra"
            )
        self.sentence += " (the rest of this file is not read)"


@dataclass(frozen=True, slots=True)
class Window:
    """The lines of a file that begin at ``begin`` or after, and before ``end`` (WHOLE_FILE: all to the end)."""

    path: bytes
    """Relative to the input's folder."""
    begin: int
    end: int
    file_bytes: int
    """The file's size when the run was planned."""
    version: bytes = b""
    """That of an object when the run was planned."""

    @property
    def is_compressed(self) -> bool:
        return self.path.lower().endswith((b".gz", b".zst"))


@contextmanager
def opened(root: str, window: Window, until: int | None = None) -> Iterator[BinaryIO]:
    """The window's file, unbuffered. Raises StorageError where it or a read of it fails, and where it is not what was planned.

    ``until``: up to where an object is worth reading ahead.
    """
    if is_uri(root):
        with _opened_object(root, window, until) as file:
            yield file
        return
    name = shown(window.path)
    try:
        fd = os.open(os.path.join(os.fsencode(root), window.path), _OPEN_FLAGS)
    except OSError as error:
        raise StorageError(f"expected a readable file, got {name}: {error.strerror}; restore it and run again") from None
    with one_sentence("read", name), open(fd, "rb", buffering=0) as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(
                f"expected {name} to be the regular file it was when the run was planned, got none; restore it and run again"
            )
        if status.st_size != window.file_bytes:
            raise StorageError(_other_length(name, window.file_bytes, status.st_size))
        yield file


@contextmanager
def _opened_object(root: str, window: Window, until: int | None) -> Iterator[BinaryIO]:
    name = os.fsdecode(window.path)
    storage = open_storage(root)
    with storage.open(name, until, window.version.decode()) as file:
        num_bytes = file.seek(0, os.SEEK_END)
        if num_bytes != window.file_bytes:
            raise StorageError(_other_length(f"{root}/{name}", window.file_bytes, num_bytes))
        file.seek(0)
        yield file


def _other_length(name: str, planned_bytes: int, num_bytes: int) -> str:
    return (
        f"expected {name} to keep the {planned_bytes} bytes it had when the run was planned, got {num_bytes}; "
        "run again when nothing writes to it"
    )


def decompressed(file: BinaryIO, path: bytes) -> Iterator[bytes]:
    """What a gzip file of any number of members, or a zstd file of any number of frames, holds.

    Where the stream is damaged everything before is delivered, to the last byte that can be had.
    """
    num_bytes = 0
    try:
        for text in _decompressed_by(file, path, None):
            num_bytes += len(text)
            yield text
        return
    except DamagedStreamError:
        # Decompressors keep back what came out before the fault in the same input, so that is given again byte by byte.
        damaged_at = max(file.tell() - _COMPRESSED_BYTES, 0)
    file.seek(0)
    for text in _decompressed_by(file, path, damaged_at):
        if len(text) > num_bytes:
            yield text[num_bytes:]
        num_bytes = max(num_bytes - len(text), 0)


def _decompressed_by(file: BinaryIO, path: bytes, single_from: int | None) -> Iterator[bytes]:
    """In inputs of 1 KiB, from ``single_from`` on in single bytes."""
    is_gzip = path.lower().endswith(b".gz")
    stream: Any = None
    num_bytes = 0
    while data := _next_input(file, single_from):
        while data:
            if stream is None:
                # gzip files may be padded with zeros between and after members.
                data = data.lstrip(b"\0") if is_gzip else data
                if not data:
                    break
                stream = zlib.decompressobj(_GZIP_WITH_HEADER) if is_gzip else zstandard.ZstdDecompressor().decompressobj()
            try:
                text = stream.decompress(data)
            except (zlib.error, zstandard.ZstdError) as error:
                raise DamagedStreamError(num_bytes, str(error), "too much memory" in str(error)) from None
            data, stream = (stream.unused_data, None) if stream.eof else (b"", stream)
            num_bytes += len(text)
            yield text
    if stream is not None:
        raise DamagedStreamError(num_bytes, "it ends before its end marker")


def _next_input(file: BinaryIO, single_from: int | None) -> bytes:
    if single_from is None:
        return file.read(_COMPRESSED_BYTES)
    left = single_from - file.tell()
    return file.read(min(left, _COMPRESSED_BYTES) if left > 0 else 1)


def blocks_around(file: BinaryIO, position: int, window: Window, block_bytes: int) -> Iterator[bytes]:
    """What a plain file has from where it stands, at ``position``, in blocks of which none goes on beyond the window's end."""
    while True:
        num_bytes = min(block_bytes, window.end - position) if position < window.end else block_bytes
        block = file.read(_REST_BYTES if position == window.end else num_bytes)
        if not block:
            return
        yield block
        position += len(block)
