"""CSV files as text: their header, and stretches of rows."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from shardtools.errors import UsageError
from shardtools.sources._lines import BOM, WHOLE_FILE
from shardtools.sources._planned import shown
from shardtools.sources._streams import DamagedStreamError, Window, decompressed, opened
from shardtools.units import printable

PLAIN_SUFFIXES = (".csv", ".tsv")
SUFFIXES = tuple(suffix + compression for suffix in PLAIN_SUFFIXES for compression in ("", ".gz", ".zst"))
_TAB_SUFFIXES = (b".tsv", b".tsv.gz", b".tsv.zst")
BLOCK_BYTES = 4 << 20
_MAX_HEADER_BYTES = 1 << 20
_LINE_END = re.compile(rb"\r\n|\n|\r")


def delimiter_of(path: bytes) -> str:
    """By the file's name: a tab for ``.tsv``, else a comma."""
    return "\t" if path.lower().endswith(_TAB_SUFFIXES) else ","


@dataclass(frozen=True)
class Header:
    """The first row of a file. A column without a name is called by its place: ``column_0`` is the first."""

    names: tuple[str, ...]
    end: int
    """Where the next row begins in the text."""


def read_header(root: str, window: Window) -> Header:
    """The header of a file. Raises UsageError where there is none."""
    name = f"{root}/{shown(window.path)}"
    begin = b""
    try:
        for block in text_blocks(root, Window(window.path, 0, WHOLE_FILE, window.file_bytes, window.version), until=BLOCK_BYTES):
            begin += block
            header = _header_in(begin, name, window.path)
            if header is not None:
                return header
            if len(begin) > _MAX_HEADER_BYTES:
                raise UsageError(f"expected a header of at most {_MAX_HEADER_BYTES} bytes in {name}, got no end of the first row")
    except DamagedStreamError as fault:
        raise UsageError(f"expected a header in {name}, got a damaged file: {fault.sentence}") from None
    header = _header_in(begin + b"\n", name, window.path)
    if header is None:
        raise UsageError(f"expected a header in {name}, got {'a quote without end' if begin.strip() else 'an empty file'}; leave it out")
    return header


def _header_in(text: bytes, name: str, path: bytes) -> Header | None:
    """The header, if the text has all of it and one byte more."""
    at = len(BOM) if text.startswith(BOM) else 0
    begin = at
    for match in _LINE_END.finditer(text, at):
        line = text[begin : match.start()]
        if match.end() == len(text) and match[0] == b"\r":
            return None  # the rest of \r\n may follow
        if not line:
            begin = match.end()
        elif line.count(b'"') % 2 == 0:
            return Header(_names(line, name, path), match.end())
    return None


def _names(line: bytes, name: str, path: bytes) -> tuple[str, ...]:
    try:
        names = next(csv.reader(io.StringIO(line.decode(), newline=""), delimiter=delimiter_of(path)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"expected a header in UTF-8 in {name}, got one that cannot be read: {error}; convert the file") from None
    names = [one or f"column_{i}" for i, one in enumerate(names)]
    twice = next((one for one, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"expected columns of different names in {name}, got two {printable(twice)!r}; correct the first row")
    return tuple(names)


def text_blocks(root: str, window: Window, until: int | None = None) -> Iterator[bytes]:
    """The text of a window, a block at a time. Raises StorageError, and DamagedStreamError where its compression is damaged.

    ``until``: up to where an object is worth reading ahead; None: the end of the window.
    """
    is_whole = window.end == WHOLE_FILE
    if until is None and not window.is_compressed and not is_whole:
        until = window.end
    with opened(root, window, until) as file:
        if window.is_compressed:
            blocks, at = decompressed(file, window.path), 0
        else:
            file.seek(window.begin)
            blocks, at = iter(lambda: file.read(BLOCK_BYTES), b""), window.begin
        for block in blocks:
            if not is_whole and at >= window.end:
                return
            part = block[max(window.begin - at, 0) : None if is_whole else window.end - at]
            at += len(block)
            if part:
                yield part
