"""Where the rows of a file end: proved by its quotes, so that none is ever cut, and remembered every MiB or so.

A line end is a row's end where an even number of quotes comes before it, if every quote that opens follows a delimiter or a
row's end, and every one that closes stands before one, or is doubled. A file with any other quote is not cut at all.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from shardtools.sources._streams import DamagedStreamError

_MARK_BYTES = 1 << 20
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
Offsets = npt.NDArray[np.int64]


class UnprovenError(Exception):
    """Nothing proves where the rows of the file end."""


@dataclass(frozen=True)
class RowMark:
    """A place where a row begins."""

    offset: int
    row: int
    """How many rows come before."""


@dataclass(frozen=True)
class RowRun:
    """The rows between two marks."""

    begin: RowMark
    end: RowMark

    @property
    def num_bytes(self) -> int:
        return self.end.offset - self.begin.offset

    @property
    def num_rows(self) -> int:
        return self.end.row - self.begin.row


def row_runs(blocks: Iterable[bytes], begin: int, delimiter: str) -> list[RowRun]:
    """Runs of rows that make up the text, which begins at ``begin`` with a row. Raises UnprovenError."""
    marks = [RowMark(begin, 0)]
    last = marks[0]
    try:
        for ends in row_ends(blocks, begin, delimiter):
            while (at := int(np.searchsorted(ends, marks[-1].offset + _MARK_BYTES))) < len(ends):
                marks.append(RowMark(int(ends[at]), last.row + at + 1))
            last = RowMark(int(ends[-1]), last.row + len(ends))
    except DamagedStreamError:
        raise UnprovenError from None  # reading tells it
    if last.row > marks[-1].row:
        marks.append(last)
    return [RowRun(*pair) for pair in pairwise(marks)]


def begins_of(run: RowRun, rows: Sequence[int], blocks: Iterable[bytes], delimiter: str) -> dict[int, int]:
    """Where each of a run's rows, in ascending order, begins, or its last one ends; ``blocks`` is the text from the run on."""
    found = {run.begin.row: run.begin.offset, run.end.row: run.end.offset}
    missing = deque(row for row in rows if row not in found)
    at = run.begin.row
    for ends in row_ends(blocks, run.begin.offset, delimiter) if missing else ():
        while missing and missing[0] <= at + len(ends):
            row = missing.popleft()
            found[row] = int(ends[row - at - 1])
        if not missing:
            break
        at += len(ends)
    if missing:
        raise UnprovenError
    return found


def row_ends(blocks: Iterable[bytes], begin: int, delimiter: str) -> Iterator[Offsets]:
    """Where each row that is not blank ends, in some arrays, none of them empty. Raises UnprovenError."""
    look = _Look(begin, ord(delimiter))
    held = b""
    for block in blocks:
        text = held + block
        # What the last byte is depends on the next one.
        held = text[-1:]
        if len(text) > 1:
            yield from look.ends(text[:-1], held[0])
    if held:
        # Behind the last byte a quote may end, but half a line end is none.
        yield from look.ends(held, ord(delimiter))
    yield from look.finish()


class _Look:
    """A look at a text, block by block."""

    def __init__(self, offset: int, delimiter: int) -> None:
        self._offset = offset
        self._around = np.zeros(256, bool)
        self._around[[delimiter, _NEWLINE, _RETURN, _QUOTE]] = True
        self._previous = _NEWLINE
        self._is_quoted = False
        self._row_begin = offset

    def ends(self, text: bytes, following: int) -> Iterator[Offsets]:
        codes = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(codes == _QUOTE)
        self._check_quotes(codes, quotes, following)
        newlines = np.flatnonzero(codes == _NEWLINE)
        newlines = newlines[self._are_outside(quotes, newlines)]
        self._check_returns(codes, quotes, following)
        ends = newlines + (self._offset + 1)
        is_after_return = self._before(codes, newlines) == _RETURN
        lengths = np.diff(ends, prepend=self._row_begin)
        rows = ends[lengths > 1 + is_after_return]
        if len(ends):
            self._row_begin = int(ends[-1])
        self._is_quoted ^= bool(len(quotes) % 2)
        self._offset += len(text)
        self._previous = text[-1]
        if len(rows):
            yield rows

    def finish(self) -> Iterator[Offsets]:
        if self._is_quoted:
            raise UnprovenError
        if self._offset > self._row_begin:
            yield np.array([self._offset], np.int64)

    def _are_outside(self, quotes: Offsets, places: Offsets) -> npt.NDArray[np.bool_]:
        outside: npt.NDArray[np.bool_] = (np.searchsorted(quotes, places) + self._is_quoted) % 2 == 0
        return outside

    def _before(self, codes: npt.NDArray[np.uint8], places: Offsets) -> npt.NDArray[np.uint8]:
        return np.where(places > 0, codes[places - 1], np.uint8(self._previous)).astype(np.uint8)

    def _check_quotes(self, codes: npt.NDArray[np.uint8], quotes: Offsets, following: int) -> None:
        opens = (np.arange(len(quotes)) + self._is_quoted) % 2 == 0
        closes = quotes[~opens]
        after = np.append(codes, np.uint8(following))[closes + 1]
        if not (self._around[self._before(codes, quotes[opens])].all() and self._around[after].all()):
            raise UnprovenError

    def _check_returns(self, codes: npt.NDArray[np.uint8], quotes: Offsets, following: int) -> None:
        returns = np.flatnonzero(codes == _RETURN)
        returns = returns[self._are_outside(quotes, returns)]
        if (np.append(codes, np.uint8(following))[returns + 1] != _NEWLINE).any():
            raise UnprovenError
