"""Values of two datasets in one form, so that what means the same is the same bytes, whatever it was stored as.

Numbers are equal by value: 1, 1.0 and true are one. Inside JSON documents whole numbers and fractions stay apart, as
parsers keep them; only how they are written does not count. Bytes, text and images are their bytes.
"""

import json
import re
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

FLOATS = ("float16", "float32", "float64")
"""The encodings that round, the narrowest first."""
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NUMBERS = frozenset(["int", *_INTEGERS, *FLOATS, "str_int", "str_float", "str_decimal"])
# orjson reads whole numbers outside 64 bits as floats; json keeps every digit.
_LONG_NUMBER = re.compile(rb"\d{19}")
_CONSTANT = "\0"
"""Names what is no number to JSON, as ``NaN``."""

Form = tuple[bytes, bytes | memoryview]
"""What a value is (``b`` bytes, ``n`` a number, ``j`` JSON, ``a`` an array), and the bytes of its one form."""
ABSENT: tuple[Form, ...] = ((b"b", b""), (b"j", b"null"))
"""What stands for a field that a sample lacks, where every sample must have it: nothing, or JSON's null."""


def kind_of(encoding: str) -> str:
    """``number``, ``json``, ``array``, or ``bytes`` for all whose stored bytes are the value."""
    if encoding in _NUMBERS:
        return "number"
    if encoding == "ndarray" or encoding.startswith("ndarray:"):
        return "array"
    return "json" if encoding == "json" else "bytes"


def json_value(text: bytes) -> Any:
    """Parsed JSON, every digit of long numbers kept. Raises ValueError for what is none."""
    if _LONG_NUMBER.search(text) is None:
        # What json takes besides, NaN above all, the reference reader takes too.
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    try:
        return json.loads(text.decode(), parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def canonical_json(value: Any) -> Form:
    """A JSON value with sorted keys in the one way to write it. Raises ValueError for what JSON cannot hold."""
    try:
        return b"j", orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        try:
            # Long numbers, and text that is no Unicode: orjson never takes these, so no value is written in both ways.
            return b"j", json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None


def canonical_number(value: Any, narrowest: str | None) -> Form:
    """A number, a truth value, or decimal text; ``narrowest`` is the float type that one of the sides rounds to."""
    if isinstance(value, bytes | str):
        value = _number_in(value)
    if isinstance(value, dict) and len(value) == 1 and _CONSTANT in value:
        value = float(value[_CONSTANT])
    if not isinstance(value, int | float | Decimal):
        raise ValueError(f"expected a number, got {type(value).__name__}")
    if narrowest is not None:
        with np.errstate(over="ignore"):
            value = float(np.dtype(narrowest).type(value))
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not value.is_integer():
        return b"n", repr(value).encode()
    return b"n", b"%d" % int(value)


def canonical_array(value: Any, dtype: str | None) -> Form:
    """Type, shape and numbers of an array, or of a list that becomes one of ``dtype``."""
    if not isinstance(value, list | np.ndarray):
        raise ValueError(f"expected an array, got {type(value).__name__}")
    array = np.ascontiguousarray(np.asarray(value))
    if dtype is not None and array.dtype != np.dtype(dtype):
        array = array.astype(np.dtype(dtype))
    array = array.astype(array.dtype.newbyteorder("<"))
    return f"a{array.dtype.str}{array.shape}".encode(), array.tobytes()


def _number_in(text: bytes | str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    value = json_value(text.encode() if isinstance(text, str) else text)
    if isinstance(value, int | float):
        return value
    raise ValueError("expected a number")


def _constant(name: str) -> Any:
    # As a value that no document holds: orjson would write NaN as null.
    return {_CONSTANT: name}
