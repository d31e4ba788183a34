"""Arrays of MDS columns to and from bytes.

Source: github.com/mosaicml/streaming, streaming/base/format/mds/encodings.py, NDArray (0.13.0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardtools.errors import UsageError
from shardtools.sample import brief

DTYPE_IDS = {
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
_DTYPES_BY_ID = {number: name for name, number in DTYPE_IDS.items()}
_MAX_DIMENSIONS = 63

Rows = npt.NDArray[np.uint8]
"""uint8 [rows, fixed_bytes]: the bytes of a fixed-size column."""


class MisfitError(Exception):
    """A value does not fit its column; the message says what was expected and what came."""


@dataclass(frozen=True)
class ArrayCodec:
    """``ndarray``, ``ndarray:DTYPE`` or ``ndarray:DTYPE:d0,d1``: what is left out is stored with every value."""

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, encoding: str) -> "ArrayCodec":
        """Raises UsageError for what is none of the three."""
        _, *given = encoding.split(":")
        if len(given) > 2 or (given and given[0] not in DTYPE_IDS):
            raise UsageError(f"expected ndarray, ndarray:DTYPE or ndarray:DTYPE:d0,d1 with a numeric dtype, got {encoding!r}")
        try:
            shape = tuple(int(text) for text in given[1].split(",")) if len(given) == 2 else None
        except ValueError:
            raise UsageError(f"expected the shape as d0,d1,..., got {encoding!r}") from None
        if shape is not None and min(shape) < 1:
            raise UsageError(f"expected sizes above 0 in the shape, got {encoding!r}")
        return cls(np.dtype(given[0]).newbyteorder("<") if given else None, shape)

    @property
    def fixed_bytes(self) -> int | None:
        """The length of every value, None where it varies."""
        return None if self.dtype is None or self.shape is None else int(np.prod(self.shape)) * self.dtype.itemsize

    def encode_one(self, value: Any) -> bytes:
        """Raises MisfitError."""
        array = _as_array(value, self.dtype)
        if self.shape is not None:
            if array.shape != self.shape:
                raise MisfitError(f"expected an array of shape {self.shape}, got shape {array.shape}")
            return array.tobytes()
        dtype_id = b"" if self.dtype is not None else bytes([DTYPE_IDS[array.dtype.name]])
        return dtype_id + _shape_bytes(array.shape) + array.tobytes()

    def encode_all(self, values: Sequence[Any]) -> Rows:
        """For arrays of one length."""
        if self.shape is not None and all(type(value) is np.ndarray and value.dtype == self.dtype for value in values):
            stacked = np.stack(values) if len(values) else np.empty((0, *self.shape), self.dtype)
            if stacked.shape[1:] == self.shape:
                return stacked.view(np.uint8).reshape(len(values), self.fixed_bytes or 0)
        return np.frombuffer(b"".join(map(self.encode_one, values)), np.uint8).reshape(len(values), self.fixed_bytes or 0)

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """The array; it may not be written to."""
        if self.shape is not None:
            return np.frombuffer(data, self.dtype).reshape(self.shape)
        kind, rest = (self.dtype, data) if self.dtype is not None else (np.dtype(_DTYPES_BY_ID[data[0]]).newbyteorder("<"), data[1:])
        num_dims, width = rest[0] >> 2, 1 << (rest[0] & 3)
        sizes = np.frombuffer(rest, f"<u{width}", num_dims, 1)
        return np.frombuffer(rest, kind, -1, 1 + num_dims * width).reshape(sizes.tolist())


def _got(value: Any) -> str:
    return f"got {type(value).__name__} {brief(value)}"


def _as_array(value: Any, dtype: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """The value as a little-endian C-ordered array that holds it without loss."""
    if not isinstance(value, list | np.ndarray):
        raise MisfitError(f"expected an array or a list of numbers, {_got(value)}")
    try:
        given = np.asarray(value)
    except ValueError:
        raise MisfitError(f"expected a list of numbers of one shape, {_got(value)}") from None
    if given.dtype.name not in DTYPE_IDS:
        raise MisfitError(f"expected numbers of a type MDS has ({', '.join(DTYPE_IDS)}), got an array of {given.dtype}")
    if not 1 <= given.ndim <= _MAX_DIMENSIONS or 0 in given.shape:
        raise MisfitError(f"expected an array with 1 to {_MAX_DIMENSIONS} dimensions and none of 0, got shape {given.shape}")
    target = dtype if dtype is not None else given.dtype.newbyteorder("<")
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.ascontiguousarray(given.astype(target))
    exact = array == given if target.kind != "f" else np.isfinite(array) == np.isfinite(given)
    if not exact.all() or (given.dtype.kind == "f" and target.kind != "f") or not _holds_whole_numbers(array, value, given):
        raise MisfitError(f"expected values that {target.name} can hold, {_got(value)}")
    return array


def _holds_whole_numbers(array: npt.NDArray[Any], value: Any, given: npt.NDArray[Any]) -> bool:
    """Whether floats hold exactly what was a whole number in ``value``: others are rounded anyway."""
    if array.dtype.kind != "f" or (isinstance(value, np.ndarray) and given.dtype.kind == "f"):
        return True
    # Below this every whole number is held.
    large = np.argwhere(np.abs(array) >= 2.0 ** (np.finfo(array.dtype).nmant + 1))
    for place in large.tolist():
        original: Any = value
        for index in place:
            original = original[index]
        if not isinstance(original, float | np.floating) and int(array[tuple(place)]) != int(original):
            return False
    return True


def _shape_bytes(shape: tuple[int, ...]) -> bytes:
    """ndim and the width of its sizes in one byte, then the sizes in the least width that holds the largest."""
    largest = max(shape)
    width_code = 0 if largest < 2**8 else 1 if largest < 2**16 else 2 if largest < 2**32 else 3
    return bytes([len(shape) << 2 | width_code]) + np.array(shape, f"<u{1 << width_code}").tobytes()
