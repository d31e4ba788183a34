"""Lines of plain, gzip and zstd files, a block at a time, each with its byte offset in the decompressed text."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, BinaryIO

import zstandard

from shardtools.errors import StorageError
from shardtools.sample import HEAD_BYTES
from shardtools.sources._file_reader import shown

BLOCK_BYTES = 4 << 20
WHOLE_FILE = -1
"""The end of a window that reaches to the end of its file."""
# Small, since a hostile stream may hold thousands of times its length, and the output for one input comes out whole.
_COMPRESSED_BYTES = 16 << 10
_NEWLINE = b"\n"
_GZIP_WITH_HEADER = 31


class DamagedStreamError(Exception):
    """A compressed stream ends early or is damaged; every whole line before was delivered."""

    def __init__(self, offset: int, cause: str) -> None:
        super().__init__(offset, cause)
        self.offset = offset
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Window:
    """The lines of a file that begin at ``begin`` or after, and before ``end`` (WHOLE_FILE: all to the end)."""

    path: bytes
    """Relative to the input's folder."""
    begin: int
    end: int
    file_bytes: int
    """The file's size when the run was planned."""

    @property
    def is_compressed(self) -> bool:
        return self.path.lower().endswith((b".gz", b".zst"))


@dataclass(slots=True)
class LineBlock:
    """Consecutive lines without their newlines; blank ones and carriage returns are still there."""

    offset: int
    """Where the first line begins."""
    lines: list[bytes]
    num_bytes: int
    """Length of the lines with the newlines between them."""
    num_before: int = 0
    """How many lines of the window come before."""
    is_too_long: bool = False
    """The block stands for one line above the limit and holds only its beginning."""

    def offsets(self) -> list[int]:
        """Where each line begins."""
        # Each line is followed by one newline.
        ends = accumulate(map((1).__add__, map(len, self.lines)), initial=self.offset)
        return list(ends)[:-1]


def line_blocks(root: str, window: Window, max_line_bytes: int) -> Iterator[LineBlock]:
    """The window's lines. Holds one block and one line of at most ``max_line_bytes`` in memory.

    Raises StorageError when the file is gone or has another size, DamagedStreamError when its compression is damaged.
    """
    with _opened(root, window) as file:
        if window.is_compressed:
            blocks = _skip(_gather(_decompressed(file, window.path)), window.begin)
            yield from _within(_whole_lines(blocks, window.begin, max_line_bytes), window, drops_first=False)
        else:
            # From the byte before, so that the first line of the stream is always the end of one that began earlier.
            position = max(window.begin - 1, 0)
            file.seek(position)
            blocks = iter(lambda: file.read(BLOCK_BYTES), b"")
            yield from _within(_whole_lines(blocks, position, max_line_bytes), window, drops_first=window.begin > 0)


def num_lines_before(root: str, window: Window, offset: int) -> int:
    """How many lines of the window's file end before ``offset``; reads everything before it."""
    num_newlines = 0
    with _opened(root, window) as file:
        blocks = _decompressed(file, window.path) if window.is_compressed else iter(lambda: file.read(BLOCK_BYTES), b"")
        for block in blocks:
            num_newlines += block.count(_NEWLINE, 0, offset)
            offset -= len(block)
            if offset <= 0:
                break
    return num_newlines


def expansion(root: str, window: Window) -> float:
    """Decompressed bytes per stored byte at the beginning of a file; 1 for a plain one, and for one that cannot be read."""
    if not window.is_compressed:
        return 1.0
    with _opened(root, window) as file:
        num_text_bytes = 0
        try:
            for text in _decompressed(file, window.path):
                num_text_bytes += len(text)
                if file.tell() >= BLOCK_BYTES:
                    break
        except DamagedStreamError:
            pass
        return num_text_bytes / file.tell() if num_text_bytes else 1.0


@contextmanager
def _opened(root: str, window: Window) -> Iterator[BinaryIO]:
    try:
        file = open(os.path.join(os.fsencode(root), window.path), "rb", buffering=0)  # noqa: SIM115 the with follows
    except OSError as error:
        raise StorageError(f"expected a readable file, got {shown(window.path)}: {error.strerror}; restore it and run again") from None
    with file:
        now_bytes = os.fstat(file.fileno()).st_size
        if now_bytes != window.file_bytes:
            raise StorageError(
                f"expected {shown(window.path)} to keep the {window.file_bytes} bytes it had when the run was planned, got {now_bytes}; "
                "run again when nothing writes to it"
            )
        yield file


def _whole_lines(blocks: Iterator[bytes], position: int, max_line_bytes: int) -> Iterator[LineBlock]:
    """Lines from blocks of a stream that stands at ``position``; the last line may lack its newline."""
    begun: list[bytes] = []  # a line whose end is not read yet
    begun_bytes = dropped_bytes = 0
    for block in blocks:
        if dropped_bytes:
            end = block.find(_NEWLINE)
            if end < 0:
                dropped_bytes += len(block)
                continue
            position += dropped_bytes + end + 1
            dropped_bytes = 0
            block = block[end + 1 :]
        cut = block.rfind(_NEWLINE)
        if cut >= 0:
            text = b"".join([*begun, block[:cut]])
            yield LineBlock(position, text.split(_NEWLINE), len(text))
            position += len(text) + 1
            begun, begun_bytes = [], 0
        begun.append(block[cut + 1 :])
        begun_bytes += len(block) - cut - 1
        if begun_bytes > max_line_bytes:
            yield LineBlock(position, [b"".join(begun)[:HEAD_BYTES]], 0, is_too_long=True)
            begun, begun_bytes, dropped_bytes = [], 0, begun_bytes
    if begun_bytes:
        yield LineBlock(position, [b"".join(begun)], begun_bytes)


def _within(blocks: Iterator[LineBlock], window: Window, drops_first: bool) -> Iterator[LineBlock]:
    """Only the lines that begin inside the window."""
    num_before = 0
    for block in blocks:
        if drops_first:
            drops_first = False
            if block.is_too_long:
                continue
            num_dropped = len(block.lines.pop(0)) + 1
            block.offset += num_dropped
            block.num_bytes -= num_dropped
        if window.end != WHOLE_FILE and block.offset + block.num_bytes >= window.end:
            del block.lines[sum(offset < window.end for offset in block.offsets()) :]
        if not block.lines:
            if window.end != WHOLE_FILE and block.offset >= window.end:
                return
            continue
        block.num_before = num_before
        num_before += len(block.lines)
        yield block


def _decompressed(file: BinaryIO, path: bytes) -> Iterator[bytes]:
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
    """In inputs of 16 KiB, from ``single_from`` on in single bytes."""
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
                raise DamagedStreamError(num_bytes, str(error)) from None
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


def _gather(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks that are worth working on; what came before an error is delivered before it is raised."""
    held: list[bytes] = []
    held_bytes = 0
    try:
        for part in parts:
            held.append(part)
            held_bytes += len(part)
            if held_bytes >= BLOCK_BYTES:
                yield b"".join(held)
                held, held_bytes = [], 0
    except DamagedStreamError:
        yield b"".join(held)
        raise
    yield b"".join(held)


def _skip(blocks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    for block in blocks:
        yield block[num_bytes:]
        num_bytes = max(num_bytes - len(block), 0)
