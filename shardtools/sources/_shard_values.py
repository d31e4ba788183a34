"""Stored values of one dataset as values of another: columns of MDS, tar members, and fields of the JSON member that holds the rest."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from shardtools.formats import MEMBER_ENCODINGS, ShardFormat
from shardtools.sample import Field
from shardtools.sources._shard_blocks import Values

_NUMBERS = {
    "int": "<i8",
    **{f"{sign}int{bits}": f"<{sign or 'i'}{bits // 8}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
TEXTS = ("str", "str_int", "str_float", "str_decimal")

Decode = Callable[[Values], list[Any]]
"""Values to values; None stays None. Raises ValueError, or anything else, where one of them cannot be taken."""


def is_array(encoding: str) -> bool:
    return encoding.partition(":")[0] == "ndarray"


def is_number(encoding: str) -> bool:
    return encoding in _NUMBERS


def is_in_record(encoding: str) -> bool:
    """Whether a column is part of the JSON member where tar members are made of columns."""
    return is_number(encoding) or encoding in TEXTS or encoding == "json"


def unchanged(values: Values) -> list[Any]:
    return list(values)


def of_column(encoding: str, shard_format: ShardFormat) -> Decode:
    """What the encoder of an MDS column of the same encoding takes: numbers and arrays, else the stored bytes."""
    if is_number(encoding):
        return lambda values: _numbers(_NUMBERS[encoding], values)
    if not is_array(encoding):
        return unchanged
    wanted = Field("", encoding)
    return lambda values: [None if value is None else shard_format.decode(wanted, value) for value in values]


def as_json(encoding: str, shard_format: ShardFormat) -> Decode:
    """What JSON calls the values; of bytes, images and arrays there is none."""
    if is_number(encoding):
        return of_column(encoding, shard_format)
    if encoding in TEXTS:
        return lambda values: [None if value is None else value.decode() for value in values]
    if encoding == "json":
        return lambda values: [None if value is None else parse_json(value) for value in values]
    return lambda values: [None] * len(values)


def as_npy(encoding: str, shard_format: ShardFormat) -> Decode:
    from shardtools.npy import npy_bytes

    arrays = of_column(encoding, shard_format)
    return lambda values: [None if array is None else npy_bytes(array) for array in arrays(values)]


def of_npy(values: Values) -> list[Any]:
    from shardtools.npy import array_of_npy

    return [None if value is None else array_of_npy(value) for value in values]


def member_encoding(name: str) -> str:
    """What readers take a tar member for by its extension."""
    return MEMBER_ENCODINGS.get(name.rpartition(".")[2], "bytes")


def of_member(name: str) -> Decode:
    """What JSON calls a tar member by its extension: text, numbers, JSON; of other members there is none."""
    encoding = member_encoding(name)
    if encoding == "int":
        return lambda values: [None if value is None else int(value) for value in values]
    return as_json(encoding, _NO_FORMAT)


_NO_FORMAT: Any = None
"""No value that JSON has needs one."""


def parse_json(text: bytes) -> Any:
    """Also what only the reference reader takes: NaN, and whole numbers outside 64 bits. Raises ValueError."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text.decode())
    # orjson makes floats of whole numbers outside 64 bits.
    return json.loads(text) if b"e+" in repr(value).encode() and _has_long(value) else value


def parsed(text: bytes | None) -> Any:
    """The value of JSON text; None where it is none."""
    try:
        return None if text is None else parse_json(text)
    except (ValueError, RecursionError):
        return None


def keys_of(values: Iterable[Any]) -> list[str]:
    """The names of the fields of those values that are objects, each once, as they come."""
    return list(dict.fromkeys(key for value in values if type(value) is dict for key in value))


def _has_long(value: Any) -> bool:
    level = [value]
    while level:
        if any(type(item) is float and abs(item) > 1e18 for item in level):
            return True
        inner = [item for item in level if type(item) in (dict, list)]
        level = [part for item in inner for part in (item.values() if type(item) is dict else item)]
    return False


def inner(values: Sequence[Any], path: str) -> list[Any]:
    """What a dotted path leads to in parsed JSON; a field of that very name comes first. None where it leads nowhere."""
    return [_inner(value, path) for value in values]


def _inner(value: Any, path: str) -> Any:
    if type(value) is dict and path in value:
        return value[path]
    for name in path.split("."):
        value = value.get(name) if type(value) is dict else None
    return value


def inner_texts(values: Values, path: str, may_lack: bool) -> list[Any]:
    """What a path leads to in JSON, as MDSWriter writes it: text of Python's json; null, or None, where it leads nowhere."""
    found = inner([None if value is None else parse_json(value) for value in values], path)
    return [None if value is None and may_lack else json.dumps(value).encode() for value in found]


def records(columns: Mapping[str, tuple[str, Values]], shard_format: ShardFormat) -> list[bytes | None]:
    """The JSON member of each sample: one object of the columns, each given with its encoding; None where all of them are.

    Text of JSON columns goes in as it is. Raises ValueError where a value is none of its encoding.
    """
    parts: dict[str, list[Any]] = {}
    is_finite = True
    for name, (encoding, values) in columns.items():
        # Text of JSON is only looked at.
        parts[name] = [_checked_json(value) for value in values] if encoding == "json" else as_json(encoding, shard_format)(values)
        if encoding.startswith("float"):
            is_finite = is_finite and all(value is None or math.isfinite(value) for value in parts[name])
    names = list(parts)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    if any(None in values for values in parts.values()):
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
    texts = [name for name, (encoding, _) in columns.items() if encoding == "json"]
    return [_dumped(row, texts, is_finite) if row else None for row in rows]


def _checked_json(text: bytes | None) -> bytes | None:
    if text is not None:
        parse_json(text)
    return text


def _dumped(row: dict[str, Any], texts: Sequence[str], is_finite: bool) -> bytes:
    """Also NaN and infinities, which JSON has not, as Python's json writes and reads them."""
    if is_finite or all(math.isfinite(value) for value in row.values() if type(value) is float):
        return orjson.dumps(row | {name: orjson.Fragment(row[name]) for name in texts if name in row} if texts else row)
    plain = row | {name: parse_json(row[name]) for name in texts if name in row}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


def _numbers(dtype: str, values: Values) -> list[Any]:
    import numpy as np

    found = [value for value in values if value is not None]
    itemsize = np.dtype(dtype).itemsize
    if any(len(value) != itemsize for value in found):
        raise ValueError(f"expected numbers of {itemsize} bytes, got others")
    numbers: list[Any] = np.frombuffer(b"".join(found), dtype).tolist()
    if len(numbers) == len(values):
        return numbers
    following = iter(numbers)
    return [None if value is None else next(following) for value in values]
