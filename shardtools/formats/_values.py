"""Stored bytes back to values, and the proof that they can be: for encodings of our writers and those of MDSWriter."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from shardtools.errors import UsageError
from shardtools.formats import IMAGE_MAGIC
from shardtools.formats._mds_values import codec
from shardtools.formats._text_values import undecodable

Check = Callable[[memoryview], str | None]
"""None for a sound value, else what is wrong with it."""

_DECIMALS: Mapping[str, Callable[[str], Any]] = {"str_int": int, "str_float": float, "str_decimal": str}
_OPAQUE = ("pkl", "pil", "jpegarray", "jpeg_array", "list[pil]", "list[jpeg]", "list[png]")
"""Encodings of MDSWriter whose values stay bytes here; a pickle would run code."""


def is_opaque(encoding: str) -> bool:
    """Whether values of this encoding are kept as bytes and never looked into."""
    return encoding in _OPAQUE


def decode(encoding: str, data: bytes) -> Any:
    """The value of an MDS column's bytes. Raises ValueError with one sentence."""
    if is_opaque(encoding):
        return data
    try:
        if encoding in _DECIMALS:
            return _DECIMALS[encoding](data.decode())
        if encoding == "json":
            return json.loads(data.decode())  # the reference reader takes UTF-8 alone, json.loads of bytes also UTF-16
        return codec(encoding).decode(data)
    except UsageError:
        raise ValueError(f"expected a known encoding, got {encoding!r}") from None
    except (ValueError, LookupError, RecursionError, OverflowError, TypeError) as error:
        raise ValueError(undecodable(encoding, data, error)) from None


def check(encoding: str) -> Check | None:
    """How values of an MDS column are checked without keeping them; None where every value of the right length is sound.

    Raises ValueError for an encoding that is not known at all.
    """
    if encoding in IMAGE_MAGIC:
        return _check_magic(encoding, IMAGE_MAGIC[encoding])
    if encoding == "json":
        return _check_json
    if encoding == "str":
        return _check_text
    if encoding == "bytes" or is_opaque(encoding) or (encoding not in _DECIMALS and fixed_bytes(encoding) is not None):
        return None
    return _check_by_decoding(encoding)


def fixed_bytes(encoding: str) -> int | None:
    """The length of every value, None where it varies. Raises ValueError for an encoding that is not known."""
    if is_opaque(encoding) or encoding in _DECIMALS:
        return None
    try:
        return codec(encoding).fixed_bytes
    except UsageError:
        raise ValueError(f"expected a known encoding, got {encoding!r}") from None


def _check_magic(encoding: str, magic: bytes) -> Check:
    def check_one(value: memoryview) -> str | None:
        if value[: len(magic)] == magic:
            return None
        return f"expected a {encoding.upper()} image, got bytes that begin with {bytes(value[: len(magic)])!r}"

    return check_one


def _check_json(value: memoryview) -> str | None:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        # The reference reader also takes NaN, so what it takes passes.
        return _check_by_decoding("json")(value)
    return None


def _check_text(value: memoryview) -> str | None:
    try:
        str(value, "utf-8")
    except UnicodeDecodeError as error:
        return undecodable("str", bytes(value), error)
    return None


def _check_by_decoding(encoding: str) -> Check:
    def check_one(value: memoryview) -> str | None:
        try:
            decode(encoding, bytes(value))
        except ValueError as error:
            return str(error)
        return None

    return check_one
