"""One sample as a comparison shows it to people: its place, and each field's value in brief."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import xxhash

from shardtools.formats import ShardFormat
from shardtools.sample import Field, brief

_HEAD_BYTES = 4096
MOST_OF_A_KEY = 8
"""How many samples of one key are looked at to name a difference; counts are exact whatever this is."""


class Value(NamedTuple):
    """A field's value, small enough to travel."""

    digest: bytes
    """Equal for values that count as equal."""
    num_bytes: int
    head: bytes
    """Its first bytes as stored."""
    shown: str

    @classmethod
    def of(cls, stored: bytes, decoded: Any, digest: bytes | None = None) -> "Value":
        """``digest`` None: stored bytes are compared as they are."""
        shown = f"{len(stored):,} bytes {brief(stored[:_HEAD_BYTES])}" if isinstance(decoded, bytes) else brief(decoded)
        return cls(xxhash.xxh3_128_digest(stored) if digest is None else digest, len(stored), stored[:_HEAD_BYTES], shown)


def in_split(content: bytes, split: str) -> bytes:
    """The digest of a sample's content together with the split it is in; without splits that of its content alone."""
    return content if not split else xxhash.xxh3_128_digest(content + split.encode())


@dataclass(frozen=True)
class Found:
    """One sample that is to be named."""

    key_digest: bytes
    content: bytes
    """The digest that was compared."""
    key: str
    values: Mapping[str, Value]
    where: str | None = None
    """The place in the source, for people."""
    shard: str | None = None
    offset: int | None = None
    split: str = ""


_SHOWN_FIELDS = 3


def difference(expected: Found, got: Found) -> str:
    """Which fields differ and how, as ``expected ..., got ...``."""
    names = [*expected.values, *(name for name in got.values if name not in expected.values)]
    differing = [name for name in names if not _same(expected.values.get(name), got.values.get(name))]
    if expected.split != got.split:
        return f"expected it in the split {expected.split}, got it in {got.split or 'none'}"
    if not differing:
        return "expected the bytes that the recipe makes, got the same values in other bytes"
    shown = [f"field {name!r}: {_how(expected.values.get(name), got.values.get(name))}" for name in differing[:_SHOWN_FIELDS]]
    more = f", and {len(differing) - _SHOWN_FIELDS} more fields" if len(differing) > _SHOWN_FIELDS else ""
    return ", ".join(shown) + more


def _same(a: Value | None, b: Value | None) -> bool:
    return a is not None and b is not None and a.digest == b.digest


def _how(expected: Value | None, got: Value | None) -> str:
    if expected is None or got is None:
        return f"expected {'none' if expected is None else expected.shown}, got {'none' if got is None else got.shown}"
    if expected.shown != got.shown:
        return f"expected {expected.shown}, got {got.shown}"
    pairs = zip(expected.head, got.head, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    place = f"after byte {min(len(expected.head), len(got.head)):,}" if first is None else f"from byte {first:,} on"
    return f"expected {expected.shown}, got other bytes {place}"


def shown_value(shard_format: ShardFormat, field: Field, data: bytes) -> Any:
    """The value for people; the bytes themselves where they are none of the field's encoding."""
    try:
        return shard_format.decode(field, data)
    except ValueError:
        return data
