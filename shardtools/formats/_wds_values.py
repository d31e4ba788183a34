"""Values that are no bytes yet as the bytes of tar members, as readers decode them by their extension."""

import json
from collections.abc import Callable
from typing import Any

import orjson

from shardtools.formats import MEMBER_ENCODINGS
from shardtools.sample import Field

_PYTHON_TYPES = {"str": (str,), "int": (int,), "float64": (int, float), "uint8": (bool,)}


def to_bytes(field: Field) -> Callable[[Any], bytes | None]:
    """How a value that is not bytes yet becomes the member's bytes; None where it cannot."""
    by_name = MEMBER_ENCODINGS.get(field.name.rpartition(".")[2])
    if by_name == "int" and "." not in field.name:
        # Readers take these members through int().
        return lambda value: _text(value) if type(value) is int else None
    if "json" in (field.encoding, by_name):
        return _dump_json
    kinds = _PYTHON_TYPES.get(field.encoding, ())
    return lambda value: _text(value) if type(value) in kinds else None


def _text(value: str | float) -> bytes | None:
    if type(value) is int:
        return b"%d" % value
    if type(value) is not str:
        return orjson.dumps(value)
    try:
        return value.encode()
    except UnicodeEncodeError:
        return None


def _dump_json(value: Any) -> bytes | None:
    """Compact JSON; None for null, and for text that is no Unicode."""
    if value is None:
        return None
    try:
        return orjson.dumps(value)
    except TypeError:
        # Numbers above 64 bits.
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except ValueError:
            return None
