"""Cells as values: which type a column has by its first cells, and what makes a later one bad.

Numbers are written as JSON writes them, so that ``007`` and ``+1`` stay text; ``true`` and ``false`` also as ``True`` and ``False``.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from shardtools.sample import brief
from shardtools.sources._table_layout import Fault

Cell = str | None
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_FLAGS = {"true": True, "True": True, "false": False, "False": False}
_INT64 = 2**63
_INT64_CHARS = len(str(-_INT64))


class _MisfitError(Exception):
    """A cell is not of its column's type."""


def encoding_of(cells: Sequence[Cell]) -> str:
    """The encoding that all of the cells have that there are, in MDS's words."""
    there = [cell for cell in cells if cell is not None]
    if not there:
        return "str"
    if all(cell in _FLAGS for cell in there):
        return "uint8"
    if all(map(_WHOLE.fullmatch, there)):
        return "int" if all(len(cell) <= _INT64_CHARS and -_INT64 <= int(cell) < _INT64 for cell in there) else "str"
    return "float64" if all(map(_NUMBER.fullmatch, there)) else "str"


def cell_values(cells: Sequence[Cell], encoding: str, is_flag: bool) -> tuple[list[Any], dict[int, Fault]]:
    """The values of a column's cells for an encoding, and which of them are none, and why."""
    if encoding == "str":
        return list(cells), {}
    read = _reader(encoding, is_flag)
    values: list[Any] = []
    faults: dict[int, Fault] = {}
    for i, cell in enumerate(cells):
        value = None
        try:
            value = None if cell is None else read(cell)
        except _MisfitError as misfit:
            faults[i] = "wrong-type", str(misfit)
        values.append(value)
    return values, faults


def _reader(encoding: str, is_flag: bool) -> Callable[[str], Any]:
    if is_flag:
        return _flag
    if encoding.startswith(("int", "uint")):
        return _whole
    if encoding.startswith("float"):
        return _number
    others: dict[str, Callable[[str], Any]] = {"json": _json, "bytes": str.encode}
    return others.get(encoding, _text)


def _flag(cell: str) -> bool:
    if cell not in _FLAGS:
        raise _MisfitError(f"expected true or false, as in the first rows, got {brief(cell)}")
    return _FLAGS[cell]


def _whole(cell: str) -> int:
    if not _WHOLE.fullmatch(cell) or len(cell) > 4000:
        raise _MisfitError(f"expected a whole number, as in the first rows, got {brief(cell)}")
    return int(cell)


def _number(cell: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise _MisfitError(f"expected a number, as in the first rows, got {brief(cell)}")
    value = float(cell)
    if value in (float("inf"), float("-inf")) or (abs(value) >= 2**53 and _WHOLE.fullmatch(cell) and int(value) != int(cell)):
        raise _MisfitError(f"expected a number that a float can hold, got {brief(cell)}")
    return value


def _json(cell: str) -> Any:
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError as error:
        raise _MisfitError(f"expected JSON, got {brief(cell)}: {error}") from None


def _text(cell: str) -> str:
    return cell
