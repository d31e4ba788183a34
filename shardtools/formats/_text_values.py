"""Tar members back to values. Numbers are decimal text here, and nothing needs numpy."""

import json
from typing import Any

_SHOWN_BYTES = 16


def decode(encoding: str, data: bytes) -> Any:
    """The value of a tar member's bytes, where numbers are decimal text. Raises ValueError with one sentence."""
    if encoding in ("bytes", "jpeg", "png"):
        return data
    try:
        if encoding == "str":
            return data.decode()
        return json.loads(data) if encoding == "json" else _number(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(undecodable(encoding, data, error)) from None


def _number(data: bytes) -> Any:
    """A JSON number or truth value; also ``007`` and what else ``int`` takes, as readers do for ``.cls``."""
    try:
        return int(data)
    except ValueError:
        return json.loads(data)


def undecodable(encoding: str, data: bytes, error: Exception) -> str:
    """The sentence for bytes that are no value of their encoding."""
    shown = f"{data[:_SHOWN_BYTES]!r}{'...' if len(data) > _SHOWN_BYTES else ''}"
    return f"expected {encoding}, got {len(data)} bytes {shown}: {error or type(error).__name__}"
