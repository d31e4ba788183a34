"""Lines of plain, gzip and zstd files, a block at a time, each with its byte offset in the decompressed text."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from shardtools.sample import HEAD_BYTES
from shardtools.sources._planned import shown
from shardtools.sources._streams import DamagedStreamError, Window, blocks_around, decompressed, opened

JSON_SPACE = b" \t\r\n"
"""What JSON takes for white space; a line of nothing else is blank."""
BOM = b"\xef\xbb\xbf"
"""May stand at the beginning of a file, and is no part of its first line."""
BLOCK_BYTES = 4 << 20
# What is worked on at once: a block of nothing but newlines would otherwise cost a hundred times its length.
_BLOCK_LINES = 16 << 10
WHOLE_FILE = -1
"""The end of a window that reaches to the end of its file."""
_NEWLINE = b"\n"
Place = Callable[[int], str]
"""Names the line at a byte offset, for messages."""


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
    offsets: Sequence[int] = ()
    """Where each line begins; settled last, when no line is dropped any more."""

    def begins(self) -> Iterator[int]:
        """Where each line begins, and where one after them would."""
        return accumulate(map((1).__add__, map(len, self.lines)), initial=self.offset)


def line_blocks(root: str, window: Window, max_line_bytes: int, until: int | None = None) -> Iterator[LineBlock]:
    """The window's lines. Holds one block or one line of at most ``max_line_bytes``, and that only until it is delivered.

    ``until``: up to where an object is worth reading ahead; None: the end of the window. Raises StorageError when the
    file is gone or has another size, DamagedStreamError when its compression is damaged.
    """
    if until is None and not window.is_compressed and window.end != WHOLE_FILE:
        until = window.end
    with opened(root, window, until) as file:
        if window.is_compressed:
            blocks = _skip(_gather(decompressed(file, window.path)), window.begin)
            yield from _within(_whole_lines(blocks, window.begin, max_line_bytes), window, drops_first=False)
        else:
            # From the byte before, so that the first line of the stream is always the end of one that began earlier.
            position = max(window.begin - 1, 0)
            file.seek(position)
            blocks = blocks_around(file, position, window, BLOCK_BYTES)
            yield from _within(_whole_lines(blocks, position, max_line_bytes), window, drops_first=window.begin > 0)


def num_lines_before(root: str, window: Window, offset: int) -> int:
    """How many lines of the window's file end before ``offset``; reads everything before it."""
    num_newlines = 0
    with opened(root, window, None if window.is_compressed else offset) as file:
        blocks = decompressed(file, window.path) if window.is_compressed else iter(lambda: file.read(BLOCK_BYTES), b"")
        while offset > 0 and (block := next(blocks, None)) is not None:
            num_newlines += block.count(_NEWLINE, 0, offset)
            offset -= len(block)
    return num_newlines


class Places:
    """Names a window's lines for people: counting those before it takes a read of its own, so only when one is asked for."""

    def __init__(self, root: str, window: Window) -> None:
        self._root = root
        self._window = window
        self._num_before_window: int | None = None

    def of(self, block: LineBlock) -> Place:
        """The places of one block's lines; holds none of them."""
        offsets, num_before = block.offsets, block.num_before

        def place(offset: int) -> str:
            if self._num_before_window is None:
                self._num_before_window = num_lines_before(self._root, self._window, offsets[0]) - num_before
            return self._named(self._num_before_window + num_before + bisect_left(offsets, offset) + 1, offset)

        return place

    def at(self, offset: int) -> str:
        """The place of any byte of the file's text; reads everything before it."""
        return self._named(num_lines_before(self._root, self._window, offset) + 1, offset)

    def _named(self, number: int, offset: int) -> str:
        return f"{shown(self._window.path)}, line {number} (byte {offset})"


def expansion(root: str, window: Window) -> float:
    """Decompressed bytes per stored byte at the beginning of a file; 1 for a plain one, and for one that cannot be read."""
    if not window.is_compressed:
        return 1.0
    with opened(root, window, BLOCK_BYTES) as file:
        num_text_bytes = 0
        try:
            for text in decompressed(file, window.path):
                num_text_bytes += len(text)
                if file.tell() >= BLOCK_BYTES:
                    break
        except DamagedStreamError:
            pass
        return num_text_bytes / file.tell() if num_text_bytes else 1.0


def _whole_lines(blocks: Iterator[bytes], position: int, max_line_bytes: int) -> Iterator[LineBlock]:
    """Lines from blocks of a stream that stands at ``position``; the last line may lack its newline."""
    # A line whose end is not read yet: one buffer, since many parts leave holes in the heap that cost as much as the line.
    begun = bytearray()
    dropped_bytes = 0
    for block in blocks:
        end = block.find(_NEWLINE)
        if dropped_bytes:
            if end < 0:
                dropped_bytes += len(block)
                continue
            position += dropped_bytes + end + 1
            dropped_bytes = 0
            block, end = block[end + 1 :], block.find(_NEWLINE, end + 1) - end - 1
        if end >= 0 and len(begun) > BLOCK_BYTES:
            # A long line comes by itself: splitting it off the lines after it would take a copy.
            begun += block[:end]
            num_bytes = len(begun)
            yield LineBlock(position, [_taken(begun)], num_bytes)
            position += num_bytes + 1
            block = block[end + 1 :]
        cut = block.rfind(_NEWLINE)
        if cut >= 0:
            text = b"".join([begun, block[:cut]])
            begun.clear()
            yield LineBlock(position, text.split(_NEWLINE), len(text))
            position += len(text) + 1
        begun += block[cut + 1 :]
        if len(begun) > max_line_bytes:
            dropped_bytes = len(begun)
            yield LineBlock(position, [bytes(begun[:HEAD_BYTES])], 0, is_too_long=True)
            begun.clear()
    if begun:
        num_bytes = len(begun)
        yield LineBlock(position, [_taken(begun)], num_bytes)


def _taken(buffer: bytearray) -> bytes:
    """What a buffer holds; the buffer is let go, since it may be large."""
    taken = bytes(buffer)
    buffer.clear()
    return taken


def _joined(parts: list[bytes]) -> bytes:
    """All parts as one; they are let go."""
    whole = b"".join(parts)
    parts.clear()
    return whole


def _within(blocks: Iterator[LineBlock], window: Window, drops_first: bool) -> Iterator[LineBlock]:
    """Only the lines that begin inside the window, not too many at once, with their offsets."""
    num_before = 0
    for block in blocks:
        if drops_first:
            drops_first = False
            if block.is_too_long:
                continue
            num_dropped = len(block.lines.pop(0)) + 1
            block.offset += num_dropped
            block.num_bytes -= num_dropped
        is_last = window.end != WHOLE_FILE and block.offset + block.num_bytes >= window.end
        ready = _portions(block)
        # Not held here while it is worked on: one line may be large.
        del block
        while ready:
            part = ready[0]
            part.num_before = num_before
            part.offsets = list(part.begins())[:-1]
            if is_last:
                num_inside = bisect_left(part.offsets, window.end)
                del part.lines[num_inside:], part.offsets[num_inside:]
            num_before += len(part.lines)
            if not part.lines:
                break
            del part
            yield ready.pop(0)
        if is_last:
            return


def _portions(block: LineBlock) -> list[LineBlock]:
    """The block cut into as many as its number of lines needs."""
    if len(block.lines) <= _BLOCK_LINES:
        return [block]
    portions, offset = [], block.offset
    for begin in range(0, len(block.lines), _BLOCK_LINES):
        lines = block.lines[begin : begin + _BLOCK_LINES]
        num_bytes = sum(map(len, lines)) + len(lines) - 1
        portions.append(LineBlock(offset, lines, num_bytes))
        offset += num_bytes + 1
    return portions


def _gather(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks that are worth working on; what came before an error is delivered before it is raised."""
    held: list[bytes] = []
    held_bytes = 0
    try:
        for part in parts:
            held.append(part)
            held_bytes += len(part)
            if held_bytes >= BLOCK_BYTES:
                yield from _blocks(_joined(held))
                held_bytes = 0
    except DamagedStreamError:
        yield from _blocks(_joined(held))
        raise
    yield from _blocks(_joined(held))


def _blocks(text: bytes) -> Iterator[bytes]:
    if len(text) < 2 * BLOCK_BYTES:
        yield text
        return
    for begin in range(0, len(text), BLOCK_BYTES):
        yield text[begin : begin + BLOCK_BYTES]


def _skip(blocks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    for block in blocks:
        yield block[num_bytes:]
        num_bytes = max(num_bytes - len(block), 0)
