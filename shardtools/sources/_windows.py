"""Cutting line files into partitions of windows: by bytes, or where a number of records ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools.sources._lines import JSON_SPACE, WHOLE_FILE, LineBlock, line_blocks
from shardtools.sources._streams import DamagedStreamError, Window


@dataclass(frozen=True)
class LineFile:
    """One input file as scanned."""

    root: int
    """Index of the input it belongs to."""
    path: bytes
    num_bytes: int
    version: bytes
    text_bytes: int
    """Length of its text: exact for a plain file, estimated for a compressed one."""

    def window(self, begin: int = 0, end: int = WHOLE_FILE) -> Window:
        return Window(self.path, begin, end, self.num_bytes, self.version)


@dataclass(frozen=True)
class Piece:
    """A window and its share of the input."""

    file: LineFile
    window: Window
    text_bytes: int


def cut_by_bytes(files: Sequence[LineFile], sizes: Iterator[int]) -> Iterator[list[Piece]]:
    """Partitions that hold as many bytes of text as ``sizes`` say, one after the other; a compressed file stays whole."""
    pieces: list[Piece] = []
    room = next(sizes)
    for file in files:
        begin = 0
        while begin < file.text_bytes:
            left = file.text_bytes - begin
            taken = left if file.window().is_compressed else min(left, room)
            end = WHOLE_FILE if taken == left else begin + taken
            pieces.append(Piece(file, file.window(begin, end), taken))
            begin += taken
            room -= taken
            if room <= 0:
                yield pieces
                pieces, room = [], next(sizes)
    if pieces:
        yield pieces


def cut_by_records(
    roots: Sequence[str], files: Sequence[LineFile], shard_samples: int, partition_bytes: int, max_line_bytes: int
) -> Iterator[tuple[list[Piece], int]]:
    """Partitions that end where ``shard_samples`` records are full, each with its number of records; reads every line."""
    pieces: list[Piece] = []
    num_records = num_bytes = 0
    for file in files:
        begin = offset = 0
        for offset in _record_offsets(roots[file.root], file, max_line_bytes):
            if num_records and num_records % shard_samples == 0 and num_bytes + offset - begin >= partition_bytes:
                if offset > begin:
                    pieces.append(Piece(file, file.window(begin, offset), offset - begin))
                yield pieces, num_records
                pieces, num_records, num_bytes, begin = [], 0, 0, offset
            num_records += 1
        rest = max(file.text_bytes, offset + 1) - begin
        pieces.append(Piece(file, file.window(begin), rest))
        num_bytes += rest
    if num_records:
        yield pieces, num_records


def _record_offsets(root: str, file: LineFile, max_line_bytes: int) -> Iterator[int]:
    """Where each line that is not blank begins; a damaged stream ends there, and is reported when it is read."""
    blocks: Iterator[LineBlock] = line_blocks(root, file.window(), max_line_bytes)
    try:
        for block in blocks:
            yield from (offset for offset, line in zip(block.offsets, block.lines, strict=True) if line.strip(JSON_SPACE))
    except DamagedStreamError:
        return
