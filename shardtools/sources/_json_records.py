"""Parsing blocks of JSON lines into records, with a reason for every line that is none."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from shardtools.sample import HEAD_BYTES, MAX_NESTING, is_too_deep
from shardtools.sources._lines import BOM, JSON_SPACE, LineBlock

# orjson reads whole numbers outside 64 bits as floats; json keeps every digit.
_LONG_NUMBER = re.compile(rb"\d{19}")
_SURELY_EXACT = 10**18
# From here on a line is not copied to learn something of it.
_LONG_LINE_BYTES = 1 << 20
_TOO_DEEP = (
    f"expected objects and lists at most {MAX_NESTING} deep in each other, which is what every JSON reader takes, got deeper ones; "
    "flatten the record"
)

Record = dict[str, Any]


class BadLine(NamedTuple):
    """A line that holds no record."""

    offset: int
    reason: str
    sentence: str
    head: bytes


class Records(NamedTuple):
    """The records of a block, with each one's line and byte offset."""

    values: Sequence[Record]
    lines: Sequence[bytes]
    offsets: Sequence[int]

    def take(self, kept: Iterable[int]) -> "Records":
        """The records at the indices ``kept``, in that order."""
        indices = list(kept)
        return Records([self.values[i] for i in indices], [self.lines[i] for i in indices], [self.offsets[i] for i in indices])


def parse(block: LineBlock, max_line_bytes: int, on_bad: Callable[[BadLine], None]) -> Records:
    """The block's records. Blank lines are none, and not bad either. Whole numbers above 64 bits become floats."""
    lines, offsets = block.lines, block.offsets
    if block.offset == 0 and lines[0].startswith(BOM):
        lines[0] = lines[0].removeprefix(BOM)
    if block.is_too_long:
        sentence = f"expected lines of at most {max_line_bytes} bytes, got a longer one; --max-line-bytes raises the limit"
        on_bad(BadLine(block.offset, "line-too-long", sentence, lines[0]))
        return Records([], [], [])
    values = _parse_all(lines, max_line_bytes)
    if values is None:
        values, lines, offsets = _parse_each(lines, offsets, max_line_bytes, on_bad)
    return Records(values, lines, offsets)


def with_all_digits(records: Records, name: str | None = None) -> Records:
    """The same records with whole numbers outside 64 bits exact; ``name`` limits the search for them to one field."""
    if max(map(len, records.lines), default=0) > _LONG_LINE_BYTES:
        suspects = [_holds_long_number(value if name is None else value.get(name)) for value in records.values]
    elif name is None:
        suspects = [_LONG_NUMBER.search(line) is not None for line in records.lines]
    else:
        # A float that large has an exponent; looking for one is faster than looking at every digit of the line.
        suspects = [type(found) is not str and "e+" in repr(found) for found in (value.get(name) for value in records.values)]
    if not any(suspects):
        return records
    rows = zip(records.values, records.lines, suspects, strict=True)
    return records._replace(values=[json.loads(line) if suspect else value for value, line, suspect in rows])


def _holds_long_number(value: Any) -> bool:
    """Whether a float in it may have been a whole number outside 64 bits."""
    level = [value]
    while level:
        if any(type(item) is float and abs(item) > _SURELY_EXACT for item in level):
            return True
        containers = [item for item in level if type(item) in (dict, list)]
        level = [inner for item in containers for inner in (item.values() if type(item) is dict else item)]
    return False


def _parse_all(lines: Sequence[bytes], max_line_bytes: int) -> list[Record] | None:
    """None as soon as one line is anything but a record."""
    if max(map(len, lines)) > max_line_bytes:
        return None
    try:
        values = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return None
    if set(map(type, values)) != {dict} or any(map(is_too_deep, _maybe_deep(lines, values))):
        return None
    return values


def _maybe_deep(lines: Sequence[bytes], values: Sequence[Record]) -> list[Record]:
    """The records whose lines have enough brackets for it."""
    # Looking for a first inner bracket is several times faster than counting, and most records have none.
    nested = [i for i, line in enumerate(lines) if line.find(b"{", 1) > 0 or line.find(b"[", 1) > 0]
    return [values[i] for i in nested if lines[i].count(b"[") + lines[i].count(b"{") > MAX_NESTING]


def _parse_each(
    lines: Sequence[bytes], offsets: Sequence[int], max_line_bytes: int, on_bad: Callable[[BadLine], None]
) -> tuple[list[Record], list[bytes], list[int]]:
    values, kept, kept_offsets = [], [], []
    for line, offset in zip(lines, offsets, strict=True):
        if not line.strip(JSON_SPACE):
            continue
        try:
            value = _parse_line(line, max_line_bytes)
        except ValueError as error:
            reason, sentence = error.args
            on_bad(BadLine(offset, reason, sentence, line[:HEAD_BYTES]))
            continue
        values.append(value)
        kept.append(line)
        kept_offsets.append(offset)
    return values, kept, kept_offsets


def _parse_line(line: bytes, max_line_bytes: int) -> Record:
    """Raises ValueError with the reason and a sentence."""
    if len(line) > max_line_bytes:
        sentence = f"expected lines of at most {max_line_bytes} bytes, got {len(line)}; --max-line-bytes raises the limit"
        raise ValueError("line-too-long", sentence)
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(*_syntax_fault(line, error)) from None
    if type(value) is not dict:
        remedy = "put each record on a line of its own" if type(value) is list else 'wrap it as {"text": ...}'
        raise ValueError("not-an-object", f"expected one JSON object a line, got {type(value).__name__}; {remedy}")
    if any(map(is_too_deep, _maybe_deep([line], [value]))):
        raise ValueError("too-deep", _TOO_DEEP)
    return value


def _syntax_fault(line: bytes, error: orjson.JSONDecodeError) -> tuple[str, str]:
    try:
        line.decode()
    except UnicodeDecodeError as fault:
        return "invalid-utf8", f"expected UTF-8, got byte 0x{line[fault.start]:02x} at position {fault.start} of the line; convert the file"
    if "depth" in str(error) or "recursion" in str(error):
        return "too-deep", _TOO_DEEP
    if "surrogate" in str(error):
        return "lone-surrogate", f"expected text that is valid Unicode, got half a surrogate pair: {error}"
    hint = "; NaN and Infinity are not JSON, write null" if re.search(rb"NaN|Infinity", line) else ""
    return "invalid-json", f"expected valid JSON, got: {error}{hint}"
