"""Arrays as ``.npy`` bytes that depend on the array alone, whichever numpy writes them.

Source: numpy.org/doc/stable/reference/generated/numpy.lib.format.html, format version 1.0: magic, version, a u16 length, a Python
literal of dtype, order and shape padded with spaces so that the data begins at a multiple of 64, then the data.
"""

import ast
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

_MAGIC = b"\x93NUMPY"
_VERSION_1 = b"\x01\x00"
_ALIGNMENT = 64


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """A little-endian array as a file ``numpy.load`` reads without pickle, in C order."""
    return _header(array.dtype.newbyteorder("<").str, array.shape) + array.tobytes()


def array_of_npy(data: bytes) -> npt.NDArray[Any]:
    """The array of a file in C order; it may not be written to. Raises ValueError for anything else, pickled objects too."""
    if data[:6] != _MAGIC or data[6:7] not in (b"\x01", b"\x02", b"\x03"):
        raise ValueError(f"expected an array as .npy, got bytes that begin with {data[:8]!r}")
    width = 2 if data[6:7] == b"\x01" else 4
    begin = 8 + width
    end = begin + int.from_bytes(data[8:begin], "little")
    dtype, shape = _described(data[begin:end])
    if len(data) - end != dtype.itemsize * prod(shape):
        raise ValueError(f"expected an array of {dtype} and shape {shape} as .npy, got {len(data) - end} bytes of data")
    return np.frombuffer(data, dtype, -1, end).reshape(shape)


@lru_cache(maxsize=4096)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': {np.dtype(dtype).str!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    taken = len(_MAGIC) + len(_VERSION_1) + 2 + len(text) + 1
    text += b" " * (-taken % _ALIGNMENT) + b"\n"
    return _MAGIC + _VERSION_1 + len(text).to_bytes(2, "little") + text


@lru_cache(maxsize=4096)
def _described(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        header = ast.literal_eval(text.decode("latin-1"))
        dtype, shape = np.dtype(header["descr"]), header["shape"]
        is_plain = header["fortran_order"] is False and dtype.kind in "uif" and all(type(size) is int and size >= 0 for size in shape)
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError):
        raise ValueError("expected the header of a .npy file, got another text") from None
    if not is_plain:
        raise ValueError(f"expected an array of numbers in C order as .npy, got {header}")
    return dtype.newbyteorder("<") if dtype.str[0] == "<" else dtype, tuple(shape)
