"""The digest of what a sample holds: the same for two samples with the same values, wherever, and in whatever batch, each is read."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardtools.duplicates import DIGEST_BYTES
from shardtools.plan import Recipe
from shardtools.sample import Batch
from shardtools.sources import PATH_FIELD

_RECORD_FIELD = "json"
"""The tar member that holds a whole record."""
_FLOATS = ("float", "float16", "float32", "float64", "str_float")


def digests_of_keys(keys: Sequence[bytes]) -> bytes:
    """16 bytes for each key. Samples are left out by it alone, so it is a digest for which nobody can find two keys: BLAKE2b."""
    return b"".join(hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest() for key in keys)


class ContentDigests:
    """16 bytes for each sample: BLAKE2b over the names and values of its fields, but for those that are its key."""

    def __init__(self, recipe: Recipe) -> None:
        # The fields of rows say nothing of the documents they are made of, which are text or JSON.
        self._encodings = {} if recipe.transforms else {field.name: field.encoding for field in recipe.fields}
        self._key_fields, self._key_paths = _key_places(recipe)

    def of(self, batch: Batch) -> bytes:
        names = sorted(batch.columns.keys() - self._key_fields)
        columns = [(f"{name}\0".encode(), self._writer(name), batch.columns[name]) for name in names]
        digests = []
        for i in range(len(batch)):
            hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
            for name, write, values in columns:
                value = values[i]
                if value is not None:
                    data = write(value)
                    hasher.update(name + len(data).to_bytes(8, "little"))
                    hasher.update(data)
            digests.append(hasher.digest())
        return b"".join(digests)

    def _writer(self, name: str) -> Callable[[Any], bytes]:
        # 1 and 1.0 are one value where the field is float.
        encoding = self._encodings.get(name)
        if encoding in _FLOATS:
            return _float
        path = self._key_paths.get(name)
        if path is not None:
            return lambda value: _without(value, path)
        return _json if encoding == "json" else _plain


def _key_places(recipe: Recipe) -> tuple[set[str | None], dict[str, tuple[str, ...]]]:
    """The fields that are the key, and by field the path to it in their JSON, where it is a part of that."""
    source = recipe.source
    key, layout = getattr(source, "key", None), getattr(source, "layout", None)
    fields: set[str | None] = {recipe.format.key_name, PATH_FIELD if getattr(source, "keep_path", False) else None}
    if key is None:
        return fields, {}
    place = getattr(layout, "key", None)
    if not isinstance(place, tuple):
        holds_record = recipe.format.index_name is None and getattr(source, "map", None) is None
        return fields | {key}, {_RECORD_FIELD: (key,)} if holds_record else {}
    # Of shards: a member or column, and perhaps a path in its JSON.
    origin, path = place
    inside = () if path is None else (path,)
    paths: dict[str, tuple[str, ...]] = {}
    for part in (part for part in getattr(layout, "parts", ()) if origin in part.origins):
        if part.form == "record":
            paths[part.name] = (origin, *inside)
        elif part.path == path:
            fields.add(part.name)
        elif part.path is None:
            paths[part.name] = inside
    return fields, paths


def _without(value: Any, path: tuple[str, ...]) -> bytes:
    """An object is stored as its bytes: the key is part of it, and what is left of it is no bytes of its own."""
    if type(value) is not bytes:
        return _json(value)
    try:
        record = json.loads(value)
    except (ValueError, RecursionError):  # a bad sample, which is told when it is stored
        return value
    *parents, last = path
    inner = _inside(record, parents)
    if type(inner) is dict and last not in inner:
        *parents, last = last.split(".")
        inner = _inside(inner, parents)
    if type(inner) is dict:
        inner.pop(last, None)
    return _json(record)


def _inside(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = value.get(name) if type(value) is dict else None
    return value


def _float(value: Any) -> bytes:
    return _plain(float(value) if isinstance(value, int | float) else value)


def _plain(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return f"{array.dtype.str}{array.shape}".encode() + array.tobytes()
    return _dumped(value)


def _json(value: Any) -> bytes:
    """Text in quotes: ``"1"`` is not 1. Bytes are JSON already."""
    return _dumped(value) if isinstance(value, str) else _plain(value)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
