"""Windows of CSV files as samples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.errors import StorageError
from shardtools.extents import extent, identity, version
from shardtools.sample import HEAD_BYTES, Batch, Field, Reject, RejectSink
from shardtools.sources._data_files import COMPRESSIONS, without_suffix
from shardtools.sources._planned import shown
from shardtools.sources._streams import DamagedStreamError, Window
from shardtools.sources._table_layout import Fault, TableLayout, TableRows
from shardtools.sources.csv._cells import Cell, cell_values
from shardtools.sources.csv._parse import NOT_TEXT, BadRow, Parsed, UnreadableError, parsed_rows
from shardtools.sources.csv._text import PLAIN_SUFFIXES, delimiter_of, read_header, text_blocks

FLAG = "uint8"
"""The encoding of columns of true and false."""


def key_prefix(path: bytes) -> bytes:
    """The file's part of keys made of rows."""
    return without_suffix(without_suffix(path, COMPRESSIONS), [suffix.encode() for suffix in PLAIN_SUFFIXES])


@dataclass(frozen=True)
class Stretch:
    """Rows of a file that follow each other."""

    root: int
    """Index of the input."""
    window: Window
    """Of its text."""
    first_row: int
    """Its number in the file."""

    def packed(self) -> bytes:
        """As an extent."""
        window = self.window
        numbers = (window.begin, window.end, self.first_row, window.file_bytes)
        name = b"%b@%d" % (window.path, self.first_row)
        return extent([name, b"%d" % self.root, window.path, *(b"%d" % number for number in numbers)], window.version)

    @classmethod
    def unpacked(cls, packed: bytes) -> "Stretch":
        """What ``packed`` was made of."""
        _, root, path, *numbers = identity(packed).split(b"\0")
        begin, end, first_row, file_bytes = map(int, numbers)
        return cls(int(root), Window(path, begin, end, file_bytes, version(packed)), first_row)


def rows_of(root: str, stretch: Stretch, columns: Sequence[str]) -> Iterator[Parsed]:
    """The rows of a stretch. Raises StorageError where the header is not that of the plan, DamagedStreamError, UnreadableError."""
    window = stretch.window
    header = read_header(root, window)
    if sorted(header.names) != sorted(columns):
        raise StorageError(
            f"expected {shown(window.path)} to keep the header it had when the run was planned, got another; "
            "run again when nothing writes to it"
        )
    return parsed_rows(lambda: text_blocks(root, window), header.names, delimiter_of(window.path))


@dataclass(frozen=True)
class StretchReader:
    """Reads stretches of files through a layout."""

    layout: TableLayout
    types: tuple[Field, ...]
    """Every column of the table with the type that its first cells have."""
    roots: tuple[str, ...]
    reject: RejectSink
    extras: tuple[str, ...]

    def batches(self, stretch: Stretch) -> Iterator[Batch]:
        """The samples of a stretch, in order."""
        name, root = shown(stretch.window.path), self.roots[stretch.root]
        prefix, first = key_prefix(stretch.window.path), stretch.first_row

        def place(number: int) -> str:
            return f"{name}, row {number}"

        at = first
        try:
            for parsed in rows_of(root, stretch, [column.name for column in self.types]):
                for bad in parsed.bad:
                    self.reject(_misfit(bad, place(first + bad.index)))
                numbers = [first + index for index in parsed.indices]
                at = max([at, *(number + 1 for number in numbers[-1:]), *(first + bad.index + 1 for bad in parsed.bad)])
                batch = self.layout.batch(table_rows(parsed, numbers, self.layout, self.types, self.extras), prefix, place, self.reject)
                batch.root = stretch.root
                if batch.keys:
                    yield batch
        except DamagedStreamError as fault:
            self.reject(Reject(fault.reason, place(at), fault.sentence))
        except UnreadableError as error:
            self.reject(Reject("unreadable-rows", place(at), f"{error} (the rest of this file is not read)"))


def _misfit(bad: BadRow, where: str) -> Reject:
    sentence = f"expected {bad.num_expected} cells as in the header, got {bad.num_cells}; quote cells with delimiters or line ends in them"
    return Reject("wrong-columns", where, sentence, bad.text.encode("utf-8", "backslashreplace")[:HEAD_BYTES])


def table_rows(parsed: Parsed, numbers: Sequence[int], layout: TableLayout, types: Sequence[Field], extras: Sequence[str]) -> TableRows:
    """The cells as a layout has them; ``numbers`` are those of the rows in their file."""
    table = _Cells(parsed, {column.name: column.encoding for column in types})
    values = [table.values(column.column, column.encoding, column.optional) for column in layout.columns]
    keys = None if layout.key is None else table.texts(layout.key)
    beside = {name: table.loose(name) for name in extras}
    return TableRows(numbers, values, keys, beside, table.faults)


class _Cells:
    """Columns of one batch of cells, and what is wrong with any of those that were asked for."""

    def __init__(self, parsed: Parsed, types: dict[str, str]) -> None:
        self._parsed = parsed
        self._types = types
        self.faults: dict[int, Fault] = {}

    def texts(self, name: str) -> list[Any]:
        cells: list[Any] = self._parsed.cells.column(name).to_pylist()
        if self._parsed.has_escaped:
            for i, cell in enumerate(cells):
                if NOT_TEXT in cell:
                    self.faults[i] = "invalid-utf8", f"expected UTF-8 in the column {name!r}, got other bytes; convert the file"
        return cells

    def values(self, name: str, encoding: str, optional: bool) -> list[Any]:
        cells: Sequence[Cell] = self.texts(name)
        if optional:
            cells = [cell or None for cell in cells]
        values, faults = cell_values(cells, encoding, encoding == FLAG and self._types[name] == FLAG)
        for i, (reason, sentence) in faults.items():
            self.faults.setdefault(i, (reason, f"column {name!r}: {sentence}"))
        return values

    def loose(self, name: str) -> list[Any]:
        """Values that are only looked at: a cell that is not of its column's type is text."""
        if name not in self._types:
            return [None] * len(self._parsed.indices)
        cells, encoding = self.texts(name), self._types[name]
        values, faults = cell_values(cells, encoding, encoding == FLAG)
        return [cells[i] if i in faults else value for i, value in enumerate(values)]
