"""Keys of records: of a field of their own, or of the path of their file and where in it they stand."""

from collections.abc import Sequence
from typing import Any

from shardtools import keys


def key_bytes(value: Any) -> bytes | None:
    """The key that a record's own field gives, not escaped yet; None where it gives none."""
    if type(value) is int:
        return b"%d" % value
    try:
        return value.encode() if type(value) is str and value else None
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape
        return None


def keys_of(raw_keys: Sequence[bytes | None], prefix: bytes | None) -> list[bytes]:
    """The legal keys; ``prefix`` is what all of them begin with where digits follow it, None where they are fields."""
    found = [raw for raw in raw_keys if raw is not None]
    if prefix is not None and found:
        # One look at the prefix serves all: digits never need escaping.
        escaped = keys.escape_key(found[0])
        digits = found[0][len(prefix) :]
        if escaped == found[0] and len(found[-1]) <= keys.MAX_KEY_BYTES:
            return found
        if escaped.endswith(digits) and len(escaped) + len(found[-1]) - len(found[0]) <= keys.MAX_KEY_BYTES:
            start = escaped[: -len(digits)]
            return [start + raw[len(prefix) :] for raw in found]
    return list(map(keys.escape_key, found))
