"""Arrays as ``.npy`` bytes that depend on the array alone, whichever numpy writes them.

Source: numpy.org/doc/stable/reference/generated/numpy.lib.format.html, format version 1.0: magic, version, a u16 length, a Python
literal of dtype, order and shape padded with spaces so that the data begins at a multiple of 64, then the data.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """A one-dimensional little-endian array as a file ``numpy.load`` reads without pickle."""
    return _header(array.dtype.newbyteorder("<").str, len(array)) + array.tobytes()


@lru_cache(maxsize=4096)
def _header(dtype: str, length: int) -> bytes:
    text = f"{{'descr': {np.dtype(dtype).str!r}, 'fortran_order': False, 'shape': ({length},), }}".encode()
    taken = len(_MAGIC) + 2 + len(text) + 1
    text += b" " * (-taken % _ALIGNMENT) + b"\n"
    return _MAGIC + len(text).to_bytes(2, "little") + text
