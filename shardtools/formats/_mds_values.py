"""Values of MDS columns to and from bytes, checked before they are written.

Source: github.com/mosaicml/streaming, streaming/base/format/mds/encodings.py (0.13.0). The reference writer casts and
truncates silently; here a value that would not come back equal is refused, but for fractions, which a float rounds to the nearest
it holds: whole numbers, text, bytes and JSON come back as they were given.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from shardtools.errors import UsageError
from shardtools.formats import IMAGE_MAGIC
from shardtools.formats._mds_arrays import DTYPE_IDS, ArrayCodec, MisfitError, Rows
from shardtools.sample import MAX_NESTING, Field, Utf8Texts, brief, is_too_deep

_SCALARS = {"int": "int64", **{name: name for name in DTYPE_IDS}}
# What decides how deep text goes that only Python's JSON can read: strings, so that brackets in them do not count, and brackets.
_JSON_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True)
class ValueCodec:
    """One encoding: how a whole column, or one value, becomes bytes, and how bytes become the value."""

    fixed_bytes: int | None
    encode_one: Callable[[Any], bytes]
    """Raises MisfitError."""
    encode_all: Callable[[Sequence[Any]], "list[bytes] | Rows"]
    """Raises anything at all when some value may not fit; ``encode_one`` then finds which."""
    decode: Callable[[bytes], Any]


@lru_cache
def codec(encoding: str) -> ValueCodec:
    """The codec for an encoding in MDS's words. Raises UsageError for one that is not supported for writing."""
    if encoding in _SCALARS:
        return _scalar_codec(np.dtype(_SCALARS[encoding]).newbyteorder("<"))
    if encoding == "ndarray" or encoding.startswith("ndarray:"):
        return _array_codec(ArrayCodec.of(encoding))
    if encoding in _VARIABLE or encoding in _PASSED_ON:
        return (_VARIABLE | _PASSED_ON)[encoding]
    known = ", ".join([*_VARIABLE, *_SCALARS, "ndarray[:dtype[:shape]]"])
    raise UsageError(f"expected an MDS encoding (one of {known}), got {encoding!r}")


def codec_of(column: Field) -> ValueCodec:
    """The codec of a column. Raises UsageError as ``codec`` does, and names it."""
    try:
        return codec(column.encoding)
    except UsageError as error:
        raise UsageError(f"{error} for the column {column.name!r}; choose another with --columns {column.name}=ENCODING") from None


def _variable_codec(encode_one: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> ValueCodec:
    return ValueCodec(None, encode_one, lambda values: list(map(encode_one, values)), decode)


def _array_codec(arrays: ArrayCodec) -> ValueCodec:
    if arrays.fixed_bytes is None:
        return _variable_codec(arrays.encode_one, arrays.decode)
    return ValueCodec(arrays.fixed_bytes, arrays.encode_one, arrays.encode_all, arrays.decode)


def _got(value: Any) -> str:
    return f"got {type(value).__name__} {brief(value)}"


def _encode_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    raise MisfitError(f"expected bytes, {_got(value)}")


def _encode_str(value: Any) -> bytes:
    try:
        if type(value) is str:
            return value.encode()
        if type(value) is bytes:
            value.decode()
            return value
    except UnicodeError:
        raise MisfitError(f"expected text that is valid UTF-8, {_got(value)}") from None
    raise MisfitError(f"expected str, {_got(value)}")


def _encode_strs(values: Sequence[Any]) -> list[bytes]:
    if isinstance(values, Utf8Texts):
        return values
    kinds = set(map(type, values))
    if kinds == {str}:
        return list(map(str.encode, values))
    # Parts of ASCII are text whatever they are parts of, those of other UTF-8 need not be.
    return list(values) if kinds == {bytes} and b"".join(values).isascii() else list(map(_encode_str, values))


def _encode_json(value: Any) -> bytes:
    if type(value) is not bytes:
        return _dump_json(value)
    may_be_deep = len(value) > MAX_NESTING and value.count(b"[") + value.count(b"{") > MAX_NESTING
    try:
        parsed = orjson.loads(value)
        is_deep = may_be_deep and is_too_deep(parsed)
    except orjson.JSONDecodeError:
        is_deep = may_be_deep and _nesting(value) > MAX_NESTING
        # The reference reader also takes NaN, so what it takes passes.
        try:
            json.loads(b"" if is_deep else value.decode())
        except ValueError as error:
            if not is_deep:
                raise MisfitError(f"expected valid JSON, got {brief(value)}: {error}") from None
    if is_deep:
        raise MisfitError(f"expected objects and lists at most {MAX_NESTING} deep in each other, got deeper ones")
    return value


def _nesting(text: bytes) -> int:
    """How deep the brackets of JSON text lie in each other."""
    depth = deepest = 0
    for token in _JSON_TOKENS.finditer(text):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _new_dump_json() -> Callable[[Any], bytes]:
    """``json.dumps(value).encode()``, by an encoder that is made once: json makes a new one for every value, at five times the cost."""
    make_encoder = getattr(json.encoder, "c_make_encoder", None)
    if make_encoder is None:
        return lambda value: json.dumps(value).encode()
    default, quote = json.JSONEncoder().default, json.encoder.encode_basestring_ascii
    encode = make_encoder(None, default, quote, None, ": ", ", ", False, False, True)
    return lambda value: "".join(encode(value, 0)).encode()


_dump_json = _new_dump_json()


def _encode_image(magic: bytes, kind: str) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        if type(value) is bytes and value.startswith(magic):
            return value
        begins = f"bytes that begin with {value[:8]!r}" if type(value) is bytes else type(value).__name__
        raise MisfitError(f"expected a {kind} image, got {begins}")

    return encode


_VARIABLE = {
    "bytes": _variable_codec(_encode_bytes, bytes),
    "str": ValueCodec(None, _encode_str, _encode_strs, lambda data: data.decode()),
    "json": _variable_codec(_encode_json, json.loads),
    "jpeg": _variable_codec(_encode_image(IMAGE_MAGIC["jpeg"], "JPEG"), bytes),
    "png": _variable_codec(_encode_image(IMAGE_MAGIC["png"], "PNG"), bytes),
}


def _encode_decimal(parse: Callable[[str], Any], kind: str) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        text = _encode_str(value)
        try:
            parse(text.decode())
        except (ValueError, ArithmeticError):
            raise MisfitError(f"expected {kind} as decimal text, {_got(value)}") from None
        return text

    return encode


_OPAQUE = ("pkl", "pil", "jpegarray", "jpeg_array", "list[pil]", "list[jpeg]", "list[png]")
_PASSED_ON = dict.fromkeys(_OPAQUE, _VARIABLE["bytes"]) | {
    encoding: _variable_codec(_encode_decimal(parse, kind), lambda data: data.decode())
    for encoding, parse, kind in (
        ("str_int", int, "a whole number"),
        ("str_float", float, "a number"),
        ("str_decimal", Decimal, "a number"),
    )
}
"""What MDSWriter stores and no source of this package makes: stored bytes of other shards, which pass on as they are."""


def _scalar_codec(dtype: np.dtype[Any]) -> ValueCodec:
    """Numbers of a fixed width; a bool counts as 0 or 1, and bytes hold the number as decimal text (``.cls`` files)."""
    is_float = dtype.kind == "f"

    def encode_one(value: Any) -> bytes:
        number = _parse_number(value, is_float)
        allowed = (int, float, bool) if is_float else (int, bool)
        if type(number) not in allowed:
            raise MisfitError(f"expected {dtype.name}, {_got(value)}")
        if is_float:
            return _float_bytes(number, dtype)
        limits = np.iinfo(dtype)
        if not int(limits.min) <= number <= int(limits.max):
            raise MisfitError(f"expected {dtype.name} ({limits.min} to {limits.max}), got {brief(number)}")
        return np.array(number, dtype).tobytes()

    def encode_all(values: Sequence[Any]) -> Rows:
        kinds = set(map(type, values))
        if kinds == {bytes}:
            values = list(map(float if is_float else int, values))
            kinds = {float if is_float else int}
        if kinds == {float} if is_float else kinds <= {int, bool}:
            # numpy raises for Python integers outside the type, so nothing is lost here.
            column = _narrowed(np.array(values, np.float64), dtype) if is_float else np.array(values, dtype)
            if column is not None:
                return column.view(np.uint8).reshape(len(values), dtype.itemsize)
        encoded = b"".join(map(encode_one, values))
        return np.frombuffer(encoded, np.uint8).reshape(len(values), dtype.itemsize)

    return ValueCodec(dtype.itemsize, encode_one, encode_all, lambda data: np.frombuffer(data, dtype)[0].item())


def _narrowed(numbers: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """The same numbers as floats of a width; None where one is outside its range."""
    with np.errstate(over="ignore"):
        stored = numbers.astype(dtype)
    return stored if (np.isinf(stored) == np.isinf(numbers)).all() else None


def _parse_number(value: Any, is_float: bool) -> Any:
    if type(value) is not bytes:
        return value
    try:
        return float(value) if is_float else int(value)
    except ValueError:
        raise MisfitError(f"expected a number as decimal text, {_got(value)}") from None


def _float_bytes(number: float, dtype: np.dtype[Any]) -> bytes:
    try:
        given = float(number)
    except OverflowError:
        given = math.inf
    with np.errstate(over="ignore"):
        stored = np.array(given, dtype)
    if np.isinf(stored) and not (type(number) is float and math.isinf(number)):
        raise MisfitError(f"expected {dtype.name}, got {brief(number)}, which is outside its range")
    if type(number) is int and int(stored) != number:
        raise MisfitError(f"expected {dtype.name}, got the integer {brief(number)}, which a float cannot hold exactly")
    return stored.tobytes()
