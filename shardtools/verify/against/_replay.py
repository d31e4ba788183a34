"""The recipe run again without writing: the bytes of every sample as pack would store them, a partition at a time."""

import io
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import xxhash

from shardtools.build.reading import Selected
from shardtools.build.stages.layout import OrderWords
from shardtools.build.stages.routed import Routed
from shardtools.duplicates import DIGEST_BYTES, key_digest
from shardtools.engines import Report
from shardtools.formats import Chunk
from shardtools.manifest import Ledger
from shardtools.plan import Recipe
from shardtools.sample import Batch, Field, Reject
from shardtools.verify.against._order import place_records, spread
from shardtools.verify.against._samples import MOST_OF_A_KEY, Found, Value, in_split, shown_value


class ShardDigest(NamedTuple):
    """What lies between the first sample of a shard and the end of its last."""

    num_samples: int
    digest: bytes


@dataclass(frozen=True)
class Replayed:
    """What one partition came to."""

    partition: int
    num_samples: int
    ledger: Ledger
    shards: tuple[ShardDigest, ...] = ()
    """Those the partition is cut into, in order; none where its samples are scattered."""
    records: bytes = b""
    """Key and content digest of each sample, where they were asked for."""
    places: tuple[bytes, ...] = ()
    """Of each split, the records that say in which order its samples are; empty where that is the order they are read in."""


class PartShards(NamedTuple):
    """A partition, and those of its shards, by their order in it, that are of no interest."""

    item: Selected
    left_out: frozenset[int] = frozenset()


@dataclass
class RejectCounts:
    """A sink that keeps nothing."""

    counts: Counter[str] = field(default_factory=Counter)

    def __call__(self, reject: Reject) -> None:
        self.counts[reject.reason] += 1

    def by_reason(self) -> Counter[str]:
        return self.counts.copy()


@dataclass(frozen=True)
class Replay:
    """Runs partitions of one recipe."""

    recipe: Recipe
    roots: tuple[str, ...]

    @property
    def splits(self) -> tuple[str, ...]:
        """Their names; the empty one alone where there are none."""
        return self.recipe.selection.splits or ("",)

    def routed(self, item: Selected) -> Routed:
        return Routed(self.recipe, self.roots, item, RejectCounts())

    def cuts(self) -> "_Cuts":
        encoder = self.recipe.format.encoder(self.recipe.fields, self.recipe.limit.num_bytes)
        return _Cuts(encoder.budget_bytes, self.recipe.limit.num_samples)


@dataclass
class _Cuts:
    """Where one partition's shards end: by the rule of the writer, which closes a shard before the sample that would not fit."""

    budget_bytes: int
    limit_samples: int | None
    shard: int = 0
    used_bytes: int = 0
    used_samples: int = 0

    def runs(self, chunk: Chunk) -> Iterator[tuple[int, int, int]]:
        """``(shard, begin, end)`` of the chunk's samples, in order."""
        begin = 0
        for i, cost in enumerate(chunk.costs):
            if self.used_samples and (self.used_bytes + cost > self.budget_bytes or self.used_samples == self.limit_samples):
                if begin < i:
                    yield self.shard, begin, i
                begin = i
                self.shard += 1
                self.used_bytes = self.used_samples = 0
            self.used_bytes += cost
            self.used_samples += 1
        if begin < len(chunk.costs):
            yield self.shard, begin, len(chunk.costs)


@dataclass(frozen=True)
class ReplayShards:
    """Digests whole shards, and with ``records`` each sample of those that are not left out."""

    replay: Replay
    records: "RecordOf | None" = None

    def __call__(self, item: PartShards, report: Report) -> Replayed:
        routed = self.replay.routed(item.item)
        digests: list[Any] = []
        counts: list[int] = []
        records: list[bytes] = []
        cuts = self.replay.cuts()
        for _, chunk, _ in routed.chunks():
            for shard, begin, end in cuts.runs(chunk):
                if shard == len(digests):
                    digests.append(xxhash.xxh3_128())
                    counts.append(0)
                counts[shard] += end - begin
                update = digests[shard].update
                for piece in chunk.pieces[chunk.ends[begin - 1] if begin else 0 : chunk.ends[end - 1]]:
                    update(piece)
                if self.records is not None and shard not in item.left_out:
                    records += (self.records(chunk, i) for i in range(begin, end))
        shards = tuple(ShardDigest(count, digest.digest()) for count, digest in zip(counts, digests, strict=True))
        return Replayed(item.item.index, sum(counts), routed.ledger, shards, b"".join(records))


@dataclass(frozen=True)
class ReplaySamples:
    """Digests each sample of a partition whose samples are scattered, with the place it has in its split."""

    replay: Replay
    records: "RecordOf"
    num_partitions: int
    is_permuted: bool
    """Whether random words order the samples, and not partitions and rows alone."""

    def __call__(self, item: PartShards, report: Report) -> Replayed:
        recipe, index = self.replay.recipe, item.item.index
        routed, splits = self.replay.routed(item.item), self.replay.splits
        words = OrderWords(recipe.shuffle_seed if self.is_permuted else None, index)
        records: list[bytes] = []
        places: list[list[bytes]] = [[] for _ in splits]
        num_samples = 0
        for _, chunk, numbers in routed.chunks():
            count = len(chunk.keys)
            found = [self.records(chunk, i, splits[number]) for i, number in enumerate(numbers.tolist())]
            records += found
            taken = words.take(count) if self.is_permuted else np.full(count, spread(index, self.num_partitions), np.uint64)
            placed = place_records(taken, index, num_samples, b"".join(found))
            for number in np.unique(numbers).tolist():
                places[number].append(placed[numbers == number].tobytes())
            num_samples += count
        return Replayed(index, num_samples, routed.ledger, records=b"".join(records), places=tuple(map(b"".join, places)))


@dataclass(frozen=True)
class RecordOf:
    """The record of one sample: the digest of its key, then of its stored bytes; without keys, that of its bytes twice."""

    has_keys: bool

    def __call__(self, chunk: Chunk, i: int, split: str = "") -> bytes:
        content = self.content(chunk, i, split)
        return (key_digest(chunk.keys[i]) if self.has_keys else content) + content

    def key(self, chunk: Chunk, i: int, split: str) -> bytes:
        """The first half."""
        return key_digest(chunk.keys[i]) if self.has_keys else self.content(chunk, i, split)

    def content(self, chunk: Chunk, i: int, split: str) -> bytes:
        hasher = xxhash.xxh3_128()
        for piece in _pieces(chunk, i):
            hasher.update(piece)
        return in_split(hasher.digest(), split)


@dataclass(frozen=True)
class FindReplayed:
    """Names the samples of a partition that have one of the wanted digests."""

    replay: Replay
    wanted: frozenset[bytes]
    record_of: RecordOf

    def __call__(self, item: Selected, report: Report) -> list[Found]:
        found: list[Found] = []
        counts: Counter[bytes] = Counter()
        splits = self.replay.splits
        for batch, chunk, numbers in self.replay.routed(item).chunks():
            for i, number in enumerate(numbers.tolist()):
                digest = self.record_of.key(chunk, i, splits[number])
                if digest in self.wanted and counts[digest] < MOST_OF_A_KEY:
                    counts[digest] += 1
                    found.append(self._found(batch, chunk, i, splits[number]))
        return found

    def _found(self, batch: Batch, chunk: Chunk, i: int, split: str) -> Found:
        key, record = chunk.keys[i], self.record_of(chunk, i, split)
        where = batch.where(chunk.index_in_batch(i))
        values = _values(self.replay.recipe, chunk, i)
        return Found(record[:DIGEST_BYTES], record[DIGEST_BYTES:], key.decode(), values, where, split=split)


def _pieces(chunk: Chunk, i: int) -> list[bytes]:
    return chunk.pieces[chunk.ends[i - 1] if i else 0 : chunk.ends[i]]


def _values(recipe: Recipe, chunk: Chunk, i: int) -> dict[str, Value]:
    """The fields of one sample, read back from a shard of its own: only the format knows where they lie in its bytes."""
    plain = replace(recipe.format, compression=None) if recipe.format.stored_compression else recipe.format
    output = _Memory()
    shard = plain.shard_file(recipe.fields, recipe.limit.num_bytes, output)
    shard.append(_pieces(chunk, i), [chunk.costs[i]])
    shard.finish()
    (sample,) = plain.stored_samples(memoryview(output.data.getvalue()))
    encodings = {field.name: field.encoding for field in recipe.fields}
    shown = {name: bytes(value) for name, value in sample.values.items() if name != plain.key_name}
    return {name: Value.of(data, shown_value(plain, Field(name, encodings[name]), data)) for name, data in shown.items()}


@dataclass
class _Memory:
    """An object that is never stored."""

    spool_folder: str = field(default_factory=tempfile.gettempdir)
    data: io.BytesIO = field(default_factory=io.BytesIO)

    def write(self, data: bytes) -> None:
        self.data.write(data)

    def finish(self) -> None: ...

    def abort(self) -> None: ...
