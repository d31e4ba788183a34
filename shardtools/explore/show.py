"""Samples as people want to see them: short texts, images as kind and pixels, arrays as shape and first values."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any

from shardtools.datasets import Dataset, Shard
from shardtools.errors import UsageError
from shardtools.explore._images import image_facts
from shardtools.formats import StoredSample
from shardtools.keys import escape_key
from shardtools.sample import brief
from shardtools.units import format_bytes, printable

_TEXT_CHARS = 120
_HEX_BYTES = 16
_ARRAY_VALUES = 8
_NEAR_KEYS = 3
COMPARED_KEYS = 20_000
"""Among how many of a dataset's first keys those near a missing one are sought."""
# Decoding what is only shown in its first characters would cost memory for nothing.
_MAX_DECODED_BYTES = 16 << 20


@dataclass(frozen=True)
class ShownValue:
    """One value of a sample."""

    name: str
    encoding: str
    num_bytes: int
    """As stored."""
    text: str
    """The value, shortened; a damaged one says so."""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "encoding": self.encoding, "bytes": self.num_bytes, "text": self.text}


@dataclass(frozen=True)
class ShownSample:
    """One sample and where it lies."""

    key: str
    shard: str
    offset: int
    """In the uncompressed shard."""
    values: tuple[ShownValue, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "key": printable(self.key),
            "shard": self.shard,
            "offset": self.offset,
            "fields": [value.as_json() for value in self.values],
        }


def head(dataset: Dataset, num_samples: int) -> Iterator[ShownSample]:
    """The first samples of the dataset."""
    return (_shown(dataset, shard, sample) for shard, sample in islice(dataset.all_samples(), num_samples))


def find(dataset: Dataset, key: str) -> ShownSample:
    """The sample of that key. Raises UsageError that names the nearest of the dataset's first 20,000 keys if there is none."""
    forms = key_forms(key)
    keys: list[str] = []
    for shard, sample in dataset.all_samples():
        if sample.key in forms:
            return _shown(dataset, shard, sample)
        if len(keys) < COMPARED_KEYS:
            keys.append(sample.key)
    raise UsageError(f"expected the key of a sample, got {brief(key)}, which is not in {dataset.uri}{near_keys(key, keys)}")


def key_forms(key: str) -> tuple[str, ...]:
    """What a key that someone types may be stored as: itself, or, where it is one from before it was packed, escaped."""
    raw = key.encode("utf-8", "surrogateescape")
    return (key, escape_key(raw).decode()) if raw else (key,)


def near_keys(key: str, keys: list[str]) -> str:
    """The end of a sentence about a missing key: the nearest there are, or the first."""
    if not keys:
        return "; it has no samples"
    near = get_close_matches(key_forms(key)[-1], keys, _NEAR_KEYS)
    shown = ", ".join(map(printable, near or keys[:1]))
    return f"; near it are {shown}" if near else f"; keys look like {shown}"


def _shown(dataset: Dataset, shard: Shard, sample: StoredSample) -> ShownSample:
    values = []
    for name, data in sample.values.items():
        encoding = dataset.field(shard, name).encoding
        values.append(ShownValue(printable(name), encoding, len(data), _value_text(dataset, shard, name, encoding, data)))
    return ShownSample(sample.key, shard.name, sample.offset, tuple(values))


def _value_text(dataset: Dataset, shard: Shard, name: str, encoding: str, data: memoryview) -> str:
    if encoding in ("bytes", "jpeg", "png"):
        return image_facts(data) or _bytes_text(data) + (f", damaged: no {encoding.upper()}" if encoding != "bytes" else "")
    if encoding == "pkl":
        return _bytes_text(data) + ", a pickle, not loaded"
    if len(data) > _MAX_DECODED_BYTES:
        return _bytes_text(data)
    try:
        value = dataset.decode(shard, name, data)
    except ValueError as error:
        return f"{_bytes_text(data)}, damaged: {error}"
    return _decoded_text(encoding, value)


def _decoded_text(encoding: str, value: Any) -> str:
    if isinstance(value, bytes):
        return _bytes_text(memoryview(value))
    if encoding.startswith("ndarray"):
        first = ", ".join(str(number) for number in value.ravel()[:_ARRAY_VALUES].tolist())
        return f"{value.dtype.name} {list(value.shape)}: {first}{', ...' if value.size > _ARRAY_VALUES else ''}"
    if encoding == "json":
        return _shortened(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return _shortened(json.dumps(value, ensure_ascii=False)) if isinstance(value, str) else str(value)


def _shortened(text: str) -> str:
    whole = printable(text)
    return whole if len(whole) <= _TEXT_CHARS else f"{whole[:_TEXT_CHARS]}... ({len(whole):,} characters)"


def _bytes_text(data: memoryview) -> str:
    first = bytes(data[:_HEX_BYTES]).hex(" ")
    return f"{format_bytes(len(data))}: {first}{' ...' if len(data) > _HEX_BYTES else ''}" if len(data) else "0 B"
