"""Values of MDS columns to and from bytes, checked before they are written.

Source: github.com/mosaicml/streaming, streaming/base/format/mds/encodings.py (0.13.0). The reference writer casts and
truncates silently; here every value that would not come back equal is refused.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from shardtools.errors import UsageError

_JPEG_MAGIC = b"\xff\xd8\xff"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_DTYPE_IDS = {
    "uint8": 8,
    "int8": 9,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}
_DTYPES_BY_ID = {number: name for name, number in _DTYPE_IDS.items()}
_SCALARS = {"int": "int64", **{name: name for name in _DTYPE_IDS}}
_WHOLE_IN_FLOAT64 = 2**53
_MAX_DIMENSIONS = 63

Rows = npt.NDArray[np.uint8]
"""uint8 [rows, fixed_bytes]: the bytes of a fixed-size column."""


class MisfitError(Exception):
    """A value does not fit its column; the message says what was expected and what came."""


@dataclass(frozen=True)
class ValueCodec:
    """One encoding: how a whole column, or one value, becomes bytes, and how bytes become the value."""

    fixed_bytes: int | None
    encode_one: Callable[[Any], bytes]
    """Raises MisfitError."""
    encode_all: Callable[[Sequence[Any]], "list[bytes] | Rows"]
    """Raises anything at all when some value may not fit; ``encode_one`` then finds which."""
    decode: Callable[[bytes], Any]


def codec(encoding: str) -> ValueCodec:
    """The codec for an encoding in MDS's words. Raises UsageError for one that is not supported for writing."""
    if encoding in _SCALARS:
        return _scalar_codec(np.dtype(_SCALARS[encoding]).newbyteorder("<"))
    if encoding == "ndarray" or encoding.startswith("ndarray:"):
        return _ndarray_codec(encoding)
    if encoding in _VARIABLE:
        return _VARIABLE[encoding]
    known = ", ".join([*_VARIABLE, *_SCALARS, "ndarray[:dtype[:shape]]"])
    raise UsageError(f"expected an MDS encoding (one of {known}), got {encoding!r}")


def _variable_codec(encode_one: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> ValueCodec:
    return ValueCodec(None, encode_one, lambda values: list(map(encode_one, values)), decode)


def _got(value: Any) -> str:
    shown = repr(value)
    return f"got {type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"


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
    return list(map(str.encode, values)) if set(map(type, values)) == {str} else list(map(_encode_str, values))


def _encode_json(value: Any) -> bytes:
    if type(value) is not bytes:
        try:
            return _dump_json(value)
        except RecursionError:
            raise MisfitError("expected JSON nested less than about 1,000 deep, got a deeper value") from None
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        # The reference reader also takes NaN, so what it takes passes.
        try:
            json.loads(value.decode())
        except (ValueError, RecursionError) as error:
            raise MisfitError(f"expected valid JSON, got {value[:40]!r}: {error}") from None
    return value


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
    "jpeg": _variable_codec(_encode_image(_JPEG_MAGIC, "JPEG"), bytes),
    "png": _variable_codec(_encode_image(_PNG_MAGIC, "PNG"), bytes),
}


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
            raise MisfitError(f"expected {dtype.name} ({limits.min} to {limits.max}), got {number}")
        return np.array(number, dtype).tobytes()

    def encode_all(values: Sequence[Any]) -> Rows:
        kinds = set(map(type, values))
        if kinds == ({float} if is_float else {int}) and dtype.itemsize == 8:
            # numpy raises for Python integers outside the type, so nothing is lost here.
            return np.array(values, dtype).view(np.uint8).reshape(len(values), dtype.itemsize)
        encoded = b"".join(map(encode_one, values))
        return np.frombuffer(encoded, np.uint8).reshape(len(values), dtype.itemsize)

    return ValueCodec(dtype.itemsize, encode_one, encode_all, lambda data: np.frombuffer(data, dtype)[0].item())


def _parse_number(value: Any, is_float: bool) -> Any:
    if type(value) is not bytes:
        return value
    try:
        return float(value) if is_float else int(value)
    except ValueError:
        raise MisfitError(f"expected a number as decimal text, {_got(value)}") from None


def _float_bytes(number: float, dtype: np.dtype[Any]) -> bytes:
    if type(number) is int and abs(number) > _WHOLE_IN_FLOAT64 and (number.bit_length() >= 1024 or int(float(number)) != number):
        raise MisfitError(f"expected {dtype.name}, got the integer {number}, which a float cannot hold exactly")
    with np.errstate(over="ignore"):
        stored = np.array(float(number), dtype)
    if np.isinf(stored) and not np.isinf(float(number)):
        raise MisfitError(f"expected {dtype.name}, got {number!r}, which is outside its range")
    return stored.tobytes()


def _ndarray_codec(encoding: str) -> ValueCodec:
    _, *given = encoding.split(":")
    if len(given) > 2 or (given and given[0] not in _DTYPE_IDS):
        raise UsageError(f"expected ndarray, ndarray:DTYPE or ndarray:DTYPE:d0,d1 with a numeric dtype, got {encoding!r}")
    dtype = np.dtype(given[0]).newbyteorder("<") if given else None
    try:
        shape = tuple(int(text) for text in given[1].split(",")) if len(given) == 2 else None
    except ValueError:
        raise UsageError(f"expected the shape as d0,d1,..., got {encoding!r}") from None
    if shape is not None and min(shape) < 1:
        raise UsageError(f"expected sizes above 0 in the shape, got {encoding!r}")

    def encode_one(value: Any) -> bytes:
        array = _as_array(value, dtype)
        if shape is not None:
            if array.shape != shape:
                raise MisfitError(f"expected an array of shape {shape}, got shape {array.shape}")
            return array.tobytes()
        dtype_id = b"" if dtype is not None else bytes([_DTYPE_IDS[array.dtype.name]])
        return dtype_id + _shape_bytes(array.shape) + array.tobytes()

    def decode(data: bytes) -> npt.NDArray[Any]:
        if shape is not None:
            return np.frombuffer(data, dtype).reshape(shape)
        kind, rest = (dtype, data) if dtype is not None else (np.dtype(_DTYPES_BY_ID[data[0]]).newbyteorder("<"), data[1:])
        num_dims, width = rest[0] >> 2, 1 << (rest[0] & 3)
        sizes = np.frombuffer(rest, f"<u{width}", num_dims, 1)
        return np.frombuffer(rest, kind, -1, 1 + num_dims * width).reshape(sizes.tolist())

    if shape is None or dtype is None:
        return _variable_codec(encode_one, decode)
    fixed_bytes = int(np.prod(shape)) * dtype.itemsize

    def encode_all(values: Sequence[Any]) -> Rows:
        return np.frombuffer(b"".join(map(encode_one, values)), np.uint8).reshape(len(values), fixed_bytes)

    return ValueCodec(fixed_bytes, encode_one, encode_all, decode)


def _as_array(value: Any, dtype: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """The value as a little-endian C-ordered array that holds it without loss."""
    if not isinstance(value, list | np.ndarray):
        raise MisfitError(f"expected an array or a list of numbers, {_got(value)}")
    try:
        given = np.asarray(value)
    except ValueError:
        raise MisfitError(f"expected a list of numbers of one shape, {_got(value)}") from None
    if given.dtype.name not in _DTYPE_IDS:
        raise MisfitError(f"expected numbers of a type MDS has ({', '.join(_DTYPE_IDS)}), got an array of {given.dtype}")
    if not 1 <= given.ndim <= _MAX_DIMENSIONS or 0 in given.shape:
        raise MisfitError(f"expected an array with 1 to {_MAX_DIMENSIONS} dimensions and none of 0, got shape {given.shape}")
    target = dtype if dtype is not None else given.dtype.newbyteorder("<")
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.ascontiguousarray(given.astype(target))
    exact = array == given if target.kind != "f" else np.isfinite(array) == np.isfinite(given)
    if not exact.all() or (given.dtype.kind == "f" and target.kind != "f"):
        raise MisfitError(f"expected values that {target.name} can hold, {_got(value)}")
    return array


def _shape_bytes(shape: tuple[int, ...]) -> bytes:
    """ndim and the width of its sizes in one byte, then the sizes in the least width that holds the largest."""
    largest = max(shape)
    width_code = 0 if largest < 2**8 else 1 if largest < 2**16 else 2 if largest < 2**32 else 3
    return bytes([len(shape) << 2 | width_code]) + np.array(shape, f"<u{1 << width_code}").tobytes()
