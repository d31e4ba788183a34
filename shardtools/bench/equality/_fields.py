"""The fields of a sample, each by its name and a hash of its value: the same from every layout that keeps it, however it is stored.

Files, members of tars and columns of bytes, text and images are compared by their bytes. What the formats store in other bytes is by
its value: numbers (``3`` as text, or as 8 bytes), arrays (a ``.npy`` file, or shape and data), JSON (whose spaces and order of names
are free). A field of no bytes is none: a format of columns holds one where a sample has nothing.
"""

from typing import Any

import numpy as np
import orjson
import xxhash

from shardtools import datasets
from shardtools.bench.readers.side import KEY, RawSample
from shardtools.bench.spec import Layout
from shardtools.formats import MEMBER_ENCODINGS
from shardtools.loaders.decoders import FieldDecoder

_AS_STORED = ("bytes", "str", "jpeg", "png", "jpeg_array", "pil")

Fields = tuple[tuple[str, int], ...]
"""Name and 64-bit hash of each field, sorted by name."""


class FieldHasher:
    """Of raw samples of one layout. Picklable."""

    def __init__(self, layout: Layout) -> None:
        fields = datasets.open_dataset(layout.uri).fields if layout.kind == "mds" else ()
        self._encodings = {field.name: field.encoding for field in fields if field.encoding not in _AS_STORED}
        self._column = FieldDecoder("mds", self._encodings, None)
        self._member = FieldDecoder("wds", {}, None)
        self._decoders: dict[str, FieldDecoder | None] = {}
        """None: by its bytes."""

    def __call__(self, raw: RawSample) -> Fields:
        return tuple((name, self._hash(name, raw[name])) for name in sorted(raw) if name != KEY and len(raw[name]))

    def _hash(self, name: str, value: Any) -> int:
        if name not in self._decoders:
            self._decoders[name] = self._decoder(name)
        decode = self._decoders[name]
        if decode is not None:
            try:
                value = _as_bytes(decode({name: value})[name])
            except Exception:  # whatever a decoder makes of bytes that are not what their name says: they are bytes
                value = bytes(value)
        return xxhash.xxh3_64_intdigest(value)

    def _decoder(self, name: str) -> FieldDecoder | None:
        if name in self._encodings:
            return self._column
        # A column of bytes may hold a whole file, whose name tells what it is as that of a member does.
        extension = name.rpartition(".")[2].lower()
        is_value = extension == "npy" or MEMBER_ENCODINGS.get(extension, "bytes") not in _AS_STORED
        return self._member if is_value else None


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.newbyteorder('<').str}{value.shape}".encode() + value.tobytes()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | np.integer):
        return b"%d" % value
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
