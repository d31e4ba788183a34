"""A segment: some encoded samples on their way through a spill, one zstd frame with a checksum.

The frame holds ``<Q`` the number of samples ``n`` and ``<Q`` the length of the names, then ``n`` of ``u64`` word, row, cost and
length of the stored bytes each, ``n`` of ``u32`` length of the key and number of the field set each, the field sets as a JSON list
(the names), all keys, all stored bytes.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from shardtools.errors import StorageError
from shardtools.formats import Chunk

Words = npt.NDArray[np.uint64]
_HEAD = struct.Struct("<QQ")
_LEVEL = 1
_COLUMNS = (("words", "<u8"), ("rows", "<u8"), ("costs", "<u8"), ("lengths", "<u8"), ("key_lengths", "<u4"), ("field_sets", "<u4"))
_CHUNK_BYTES = 4 << 20
_CHUNK_SAMPLES = 4096


@dataclass(frozen=True)
class Samples:
    """Encoded samples without an order."""

    words: Words
    rows: Words
    """By partition and row, a sample is told from all others of the dataset."""
    costs: Words
    lengths: Words
    key_lengths: npt.NDArray[np.uint32]
    field_sets: npt.NDArray[np.uint32]
    names: list[str]
    """What ``field_sets`` numbers."""
    keys: bytes
    data: memoryview
    """The stored bytes, sample by sample."""

    def packed(self) -> bytes:
        """The frame."""
        names = json.dumps(self.names).encode()
        columns = [np.ascontiguousarray(getattr(self, name), kind).tobytes() for name, kind in _COLUMNS]
        parts: list[bytes | memoryview] = [_HEAD.pack(len(self.words), len(names)), *columns, names, self.keys, self.data]
        compressor = zstandard.ZstdCompressor(_LEVEL, write_checksum=True).compressobj(sum(map(len, parts)))
        return b"".join([*map(compressor.compress, parts), compressor.flush()])

    @classmethod
    def unpacked(cls, frame: bytes | bytearray, where: str) -> "Samples":
        """Raises StorageError that names ``where`` it lies, for other bytes than were written."""
        try:
            content = memoryview(zstandard.ZstdDecompressor().decompress(frame))
        except zstandard.ZstdError as error:
            raise StorageError(
                f"expected {where} as it was written, got a damaged file ({error}); run the same command again with --overwrite"
            ) from None
        count, names_bytes = _HEAD.unpack_from(content)
        columns: dict[str, Any] = {}
        at = _HEAD.size
        for name, kind in _COLUMNS:
            columns[name] = np.frombuffer(content, kind, count, at)
            at += columns[name].nbytes
        names = json.loads(bytes(content[at : at + names_bytes]))
        keys_end = at + names_bytes + int(columns["key_lengths"].sum())
        return cls(**columns, names=names, keys=bytes(content[at + names_bytes : keys_end]), data=content[keys_end:])

    def between(self, low: int, high: int) -> "Samples":
        """A copy of those with a word from ``low`` up to ``high``, not included."""
        kept = np.flatnonzero((self.words >= np.uint64(low)) & (self.words <= np.uint64(high - 1)))
        key_ends, ends = np.cumsum(self.key_lengths, dtype=np.int64), np.cumsum(self.lengths, dtype=np.int64)
        columns = {name: getattr(self, name)[kept] for name, _ in _COLUMNS}
        keys = [self.keys[end - length : end] for end, length in zip(key_ends[kept], columns["key_lengths"].tolist(), strict=True)]
        data = [self.data[end - length : end] for end, length in zip(ends[kept], columns["lengths"].tolist(), strict=True)]
        return Samples(**columns, names=self.names, keys=b"".join(keys), data=memoryview(b"".join(data)))


def in_order(found: Sequence[tuple[int, Samples]], begin: int, end: int) -> Iterator[Chunk]:
    """The samples of some partitions by word, then partition, then row, from the ``begin``-th up to the ``end``-th, a chunk at a time."""
    sizes = [len(samples.words) for _, samples in found]
    if not any(sizes):
        return
    holders = np.repeat(np.arange(len(found)), sizes)
    places = np.concatenate([np.arange(size) for size in sizes])
    partitions = np.repeat([partition for partition, _ in found], sizes)
    rows = np.concatenate([samples.rows for _, samples in found])
    order = np.lexsort((rows, partitions, np.concatenate([samples.words for _, samples in found])))[begin:end]
    views = [_View.of(samples) for _, samples in found]
    costs = np.concatenate([samples.costs for _, samples in found])[order]
    for low, high in _cuts(costs):
        some = order[low:high]
        yield _chunk(views, holders[some].tolist(), places[some].tolist(), costs[low:high].tolist())


@dataclass(frozen=True)
class _View:
    """Where each sample of a segment lies."""

    samples: Samples
    key_begins: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]

    @classmethod
    def of(cls, samples: Samples) -> "_View":
        return cls(samples, _begins(samples.key_lengths), _begins(samples.lengths))


def _begins(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _cuts(costs: Words) -> Iterator[tuple[int, int]]:
    """Bounds of chunks that are neither many samples nor many bytes."""
    ends, begin = np.cumsum(costs, dtype=np.int64), 0
    while begin < len(costs):
        most = int(ends[begin] - costs[begin]) + _CHUNK_BYTES
        end = min(max(begin + 1, int(np.searchsorted(ends, most, "right"))), begin + _CHUNK_SAMPLES)
        yield begin, end
        begin = end


def _chunk(views: Sequence[_View], holders: Sequence[int], places: Sequence[int], costs: Sequence[int]) -> Chunk:
    keys, pieces, field_sets = [], [], []
    for holder, i in zip(holders, places, strict=True):
        view = views[holder]
        samples, key_begins, begins = view.samples, view.key_begins, view.begins
        keys.append(samples.keys[key_begins[i] : key_begins[i + 1]])
        pieces.append(bytes(samples.data[begins[i] : begins[i + 1]]))
        field_sets.append(samples.names[samples.field_sets[i]])
    return Chunk(keys, pieces, range(1, len(pieces) + 1), costs, field_sets)
