"""Text of CSV as record batches of cells, and the rows that have too many cells or too few."""

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import csv

from shardtools.sample import brief
from shardtools.sources._streams import DamagedStreamError
from shardtools.sources.csv._lent import Lent, LentFile

NOT_TEXT = "\U0010ffff"
"""Stands for a byte that is no UTF-8: no text has this character, and what parses takes nothing else."""
_END = "\U0010fffe"
"""Begins a row behind the last one: read as such, it proves that no quote is open there. No text has this character either."""
_ESCAPED = re.compile("[\udc80-\udcff]")
_BATCH_ROWS = 4096
_BLOCK_BYTES = (4 << 20, 32 << 20, 256 << 20)
"""How much is parsed at once: the next size where a row is longer."""
_STRADDLES = "straddl"


class UnreadableError(Exception):
    """The rest of a text cannot be parsed; the message says what was expected and what came."""


@dataclass(frozen=True)
class BadRow:
    """A row with another number of cells than the header."""

    index: int
    num_expected: int
    num_cells: int
    text: str


@dataclass
class Parsed:
    """Some rows, by their index in the text."""

    indices: Sequence[int]
    cells: Any
    """A record batch of text."""
    bad: list[BadRow] = field(default_factory=list)
    """Bad rows up to the last one here, since those that came before."""
    has_escaped: bool = False
    """Some cell may hold NOT_TEXT."""


def parsed_rows(text: Callable[[], Iterable[bytes]], names: Sequence[str], delimiter: str) -> Iterator[Parsed]:
    """The rows of a text that begins with one. Blank lines are none.

    Raises DamagedStreamError where the text ends too early, behind every row that is whole, UnreadableError likewise for an open quote.
    """
    num_done = 0
    for block_bytes in _BLOCK_BYTES:
        parser = _Parser(text(), names, delimiter, block_bytes)
        try:
            for rows in parser.rows():
                if rows.indices and rows.indices[-1] < num_done:
                    continue
                kept = [i for i, index in enumerate(rows.indices) if index >= num_done]
                if len(kept) < len(rows.indices):
                    rows = Parsed([rows.indices[i] for i in kept], rows.cells.take(kept), rows.bad, rows.has_escaped)
                rows.bad = [row for row in rows.bad if row.index >= num_done]
                num_done = max([num_done, *(index + 1 for index in rows.indices[-1:]), *(row.index + 1 for row in rows.bad)])
                yield rows
            return
        except pa.ArrowInvalid as error:
            if _STRADDLES not in str(error):
                raise UnreadableError(f"expected CSV, got text that is none: {brief(str(error))}; correct the file") from None
    raise UnreadableError("expected rows of at most 256 MiB, got a longer one, maybe by a quote without end; correct the file")


class _Parser:
    """One pass over a text."""

    def __init__(self, text: Iterable[bytes], names: Sequence[str], delimiter: str, block_bytes: int) -> None:
        self._end = _END + delimiter * len(names)
        self._stream = _Stream(text, self._end)
        self._names = list(names)
        self._delimiter = delimiter
        self._block_bytes = block_bytes
        self._bad: dict[int, BadRow] = {}
        self._next = 0

    def rows(self) -> Iterator[Parsed]:
        held: Parsed | None = None
        for batch in self._batches():
            for begin in range(0, batch.num_rows, _BATCH_ROWS):
                if held is not None:
                    yield self._with_bad(held, held.indices[-1])
                cells = batch.slice(begin, _BATCH_ROWS)
                held = Parsed(self._indices(cells.num_rows), cells)
        fault = self._stream.fault or self._open_quote()
        if fault is not None:
            held = self._without_last(held)
        if held is not None:
            yield self._with_bad(held, held.indices[-1])
        if self._bad:
            yield self._with_bad(Parsed([], pa.RecordBatch.from_pydict({name: pa.array([], pa.binary()) for name in self._names})), None)
        if fault is not None:
            raise fault

    def _batches(self) -> Iterator[Any]:
        options = csv.ReadOptions(use_threads=False, block_size=self._block_bytes, column_names=self._names)
        lent = Lent()
        source, take_bad = lent.out(LentFile(self._stream, lent)), lent.out(self._take_bad)
        parse = csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=take_bad)
        kinds = dict.fromkeys(self._names, pa.string())
        convert = csv.ConvertOptions(column_types=kinds, strings_can_be_null=False, null_values=[], check_utf8=False)
        try:
            yield from csv.open_csv(source, options, parse, convert)
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):
                raise error.with_traceback(None) from None  # whose frames hold what is lent
        finally:
            self._stream.ended = True
            del source, take_bad, parse
            lent.wait()

    def _take_bad(self, row: Any) -> str:
        index = row.number - 1
        self._bad[index] = BadRow(index, row.expected_columns, row.actual_columns, row.text)
        return "skip"

    def _open_quote(self) -> UnreadableError | None:
        """What is wrong where the last row took in everything to the end of the text, and what was put behind it."""
        last = max(self._bad, default=None)
        if last is not None and self._bad[last].text == self._end:
            del self._bad[last]
            return None
        return UnreadableError("expected the end of a quoted cell, got the end of the text; close the quote, or double it")

    def _indices(self, count: int) -> Sequence[int]:
        begin = self._next
        if not any(begin <= index < begin + count for index in list(self._bad)):
            self._next = begin + count
            return range(begin, begin + count)
        found: list[int] = []
        while len(found) < count:
            if self._next not in self._bad:
                found.append(self._next)
            self._next += 1
        return found

    def _with_bad(self, rows: Parsed, until: int | None) -> Parsed:
        """With the bad rows before ``until``; None: all that are left."""
        taken = sorted(index for index in list(self._bad) if until is None or index < until)
        rows.bad = [self._bad.pop(index) for index in taken]
        rows.has_escaped = self._stream.has_escaped
        return rows

    def _without_last(self, rows: Parsed | None) -> Parsed | None:
        """Without the row at which the text ends too early."""
        last = rows.indices[-1] if rows is not None else -1
        if self._bad and max(self._bad) > last:
            del self._bad[max(self._bad)]
            return rows
        if rows is None or len(rows.indices) == 1:
            return None
        return Parsed(rows.indices[:-1], rows.cells.slice(0, len(rows.indices) - 1))


class _Stream(io.RawIOBase):
    """Text as a file of nothing but UTF-8, up to where it is damaged, or to its end, with a last row behind it."""

    def __init__(self, text: Iterable[bytes], last: str) -> None:
        # A blank line first: what looks like a byte order mark is taken away at the very beginning alone.
        self._blocks = self._as_text(text)
        self._block = memoryview(b"\n")
        self._last = f"\n{last}\n".encode()
        self.fault: DamagedStreamError | None = None
        self.has_escaped = False
        self.ended = False
        """No more is wanted."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.ended:
            return 0
        if not self._block:
            self._block = memoryview(next(self._blocks, b""))
        taken = self._block[: len(buffer)]
        buffer[: len(taken)] = taken
        self._block = self._block[len(taken) :]
        return len(taken)

    def _as_text(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        held = b""
        try:
            for block in blocks:
                data = held + block
                try:
                    _, num_whole = codecs.utf_8_decode(data, "strict", False)
                    sound = data[:num_whole]
                except UnicodeDecodeError:
                    text, num_whole = codecs.utf_8_decode(data, "surrogateescape", False)
                    sound = self._escaped(text)
                held = data[num_whole:]
                if sound:
                    yield sound
        except DamagedStreamError as fault:
            self.fault = fault
            return
        if held:
            yield self._escaped(held.decode("utf-8", "surrogateescape"))
        yield self._last

    def _escaped(self, text: str) -> bytes:
        self.has_escaped = True
        return _ESCAPED.sub(NOT_TEXT, text).encode()
