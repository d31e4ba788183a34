"""What a sample proves, found in the worker that read it; and what all of them come to."""

import hashlib
import heapq
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import xxhash

from shardtools import keys
from shardtools.bench.equality._fields import FieldHasher, Fields
from shardtools.bench.equality.token_streams import (
    Bag,
    Digester,
    Part,
    Run,
    joined,
    parts_of_row,
    pieces_name,
    runs_of_row,
    stream_name,
    stream_text,
)
from shardtools.bench.readers.faults import stages_of
from shardtools.bench.readers.prepare import LENGTH_FIELDS, TOKEN_FIELDS, TokenDecoder, decoder_of, payload_bytes
from shardtools.bench.readers.recipes import packing_of, recipe_of
from shardtools.bench.readers.side import KEY, RawSample
from shardtools.bench.spec import Layout, Workload

DECODED_SAMPLES = 64
"""So many samples with the smallest hashes are decoded and compared."""
DECODED_OF_PART = 2_000
"""The same where only a part of the samples is read, of which another side reads others."""


class Seen(NamedTuple):
    """What one delivered sample is."""

    key: str
    num_bytes: int
    decoded: str | None
    """Digest of what decoding made; None where it is not among those that are compared."""
    runs: list[Run] | None = None
    """Of a packed row."""
    parts: list[Part] | None = None
    """Of a row made on the fly."""
    fields: Fields = ()
    """None of a row made on the fly."""


class Witness:
    """The ``finish`` of a proof, in place of that of a measurement. Each worker decodes what may be among the smallest it sees."""

    def __init__(self, layout: Layout, workload: Workload, num_decoded: int) -> None:
        self._decode = decoder_of(layout, workload)
        self._stage, _ = stages_of(layout, workload)
        self._hashed = FieldHasher(layout)
        self._num_decoded = num_decoded
        self._largest: list[int] = []
        self._tokens = TokenDecoder(layout) if workload.decode == "tokens" else None
        self._cut = workload.seq_len
        self._digester = Digester()

    def __call__(self, raw: RawSample) -> Seen:
        pieces = raw.pop("pieces", None)
        if pieces is not None:
            return Seen("", payload_bytes(raw), None, None, parts_of_row(raw["tokens"], pieces, self._cut, self._digester))
        key, num_bytes = canonical_key(raw[KEY]), payload_bytes(raw)
        runs = None if self._tokens is None else self._runs(self._tokens, raw)
        fields = self._hashed(raw)
        decoded = self._decoded(raw) if self._is_wanted(key_hash(key)) else None
        return Seen(key, num_bytes, decoded, runs, fields=fields)

    def _decoded(self, raw: RawSample) -> str:
        """Raises SampleError."""
        try:
            return digest_of(self._decode(raw))
        except (Exception, SystemExit) as error:
            raise self._stage.fault(raw, error) from None

    def _runs(self, tokens: TokenDecoder, raw: RawSample) -> list[Run]:
        row = tokens.array(raw, TOKEN_FIELDS)
        has_lengths = any(name in raw for name in LENGTH_FIELDS)
        lengths = tokens.array(raw, LENGTH_FIELDS) if has_lengths else np.array([len(row)])
        return runs_of_row(row, lengths, self._digester)

    def _is_wanted(self, found: int) -> bool:
        if len(self._largest) < self._num_decoded:
            heapq.heappush(self._largest, -found)
            return True
        return heapq.heappushpop(self._largest, -found) != -found


def canonical_key(key: str) -> str:
    """The name that packing would give: shards of others, and their readers, may hold it unescaped."""
    raw = key.removeprefix("./").encode("utf-8", "surrogateescape")
    is_legal = len(raw) <= keys.MAX_KEY_BYTES and keys.KEY.fullmatch(raw) is not None
    return (raw if is_legal else keys.escape_key(raw)).decode()


def key_hash(key: str) -> int:
    """64 bits."""
    return xxhash.xxh3_64_intdigest(key.encode())


def digest_of(decoded: Any) -> str:
    """SHA-256 of a decoded sample, whatever it is made of: tensors, arrays, images, numbers, text, and containers of them."""
    digest = hashlib.sha256()
    for piece in _pieces(decoded):
        digest.update(b"%d:" % len(piece) + piece)
    return digest.hexdigest()


def _pieces(value: Any) -> list[bytes]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        return [f"{value.dtype}{tuple(value.shape)}".encode(), bytes(value.reshape(-1).view(torch.uint8).numpy())]
    if isinstance(value, np.ndarray | np.generic):
        return [f"{value.dtype}{value.shape}".encode(), value.tobytes()]
    if isinstance(value, bytes | bytearray | memoryview):
        return [b"bytes", bytes(value)]
    if isinstance(value, dict):
        return [b"dict"] + [piece for name in sorted(value) for piece in (repr(name).encode(), *_pieces(value[name]))]
    if isinstance(value, list | tuple):
        return [b"list %d" % len(value)] + [piece for inner in value for piece in _pieces(inner)]
    if callable(getattr(value, "tobytes", None)):  # PIL.Image
        return [f"{value.mode}{value.size}".encode(), value.tobytes()]
    return [repr(value).encode()]


@dataclass
class Tally:
    """All samples that were delivered. Memory: their keys."""

    num_decoded: int
    keys: Counter[str] = field(default_factory=Counter)
    num_delivered: int = 0
    num_bytes: int = 0
    num_tokens: int = 0
    decoded: dict[str, str] = field(default_factory=dict)
    """Digests of decoded samples by key: at the end those with the smallest hashes."""
    fields: dict[str, dict[str, int]] = field(default_factory=dict)
    """By key, the hash of each field by its name."""

    def add(self, seen: Seen) -> None:
        self.num_delivered += 1
        self.num_bytes += seen.num_bytes
        if seen.parts is None:
            self.keys[seen.key] += 1
        if seen.fields:
            self.fields[seen.key] = {sys.intern(name): value for name, value in seen.fields}
        if seen.decoded is not None:
            self.decoded[seen.key] = seen.decoded
        self.num_tokens += sum(run.length for run in seen.runs or ()) + sum(part.run.length for part in seen.parts or ())

    def smallest(self) -> dict[str, str]:
        """The decoded samples whose keys have the smallest hashes."""
        chosen = heapq.nsmallest(self.num_decoded, self.decoded, key=key_hash)
        return {key: self.decoded[key] for key in chosen}

    @property
    def repeated(self) -> list[str]:
        """Keys that came more than once."""
        return [key for key, count in self.keys.items() if count > 1]


@dataclass
class RowStreams:
    """What packed rows come to: by pieces in any order, or as one stream in the order of rows."""

    layout: Layout
    _bag: Bag = field(default_factory=Bag)
    _rows: dict[str, Run] = field(default_factory=dict)

    def add(self, seen: Seen) -> None:
        runs = seen.runs or []
        for run in runs:
            self._bag.add(run)
        self._rows[seen.key] = joined(runs)

    def digests(self) -> dict[str, str]:
        """Under the one name that its packing allows; under none where no recipe says how it was packed."""
        packing = packing_of(recipe_of(self.layout.uri))
        if packing is None:
            return {}
        cut, long_docs = packing["seq_len"], packing["long_docs"]
        if packing["strategy"] == "concat":
            # Keys of packed rows are in the order of the dataset.
            return {stream_name(cut, long_docs): stream_text(joined(self._rows[key] for key in sorted(self._rows)))}
        return {pieces_name(cut, long_docs): str(self._bag)}
