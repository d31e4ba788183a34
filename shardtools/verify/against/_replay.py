"""The recipe run again without writing: the bytes of every sample as pack would store them, a partition at a time."""

import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import xxhash

from shardtools.build.reading import Reading
from shardtools.duplicates import key_digest
from shardtools.engines import Report
from shardtools.formats import Chunk
from shardtools.manifest import Ledger
from shardtools.plan import Partition, Recipe
from shardtools.sample import Batch, Field, Reject
from shardtools.verify.against._samples import MOST_OF_A_KEY, Found, Value, shown_value


class ShardDigest(NamedTuple):
    """What lies between the first sample of a shard and the end of its last."""

    num_samples: int
    digest: bytes


@dataclass(frozen=True)
class Replayed:
    """What one partition came to."""

    partition: int
    shards: tuple[ShardDigest, ...]
    """Those the partition is cut into, in order."""
    ledger: Ledger
    records: bytes = b""
    """Key and content digest of each sample, where they were asked for."""

    @property
    def num_samples(self) -> int:
        return sum(shard.num_samples for shard in self.shards)


class PartShards(NamedTuple):
    """A partition, and those of its shards, by their order in it, that are of no interest."""

    partition: Partition
    left_out: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Replay:
    """Runs partitions of one recipe."""

    recipe: Recipe
    roots: tuple[str, ...]

    def reading(self, partition: Partition, reject: Callable[[Reject], None]) -> Reading:
        return Reading(self.recipe, self.roots, partition, reject)

    def chunks(self, reading: Reading, reject: Callable[[Reject], None]) -> Iterator[tuple[Batch, Chunk]]:
        encoder = self.recipe.format.encoder(self.recipe.fields, self.recipe.limit.num_bytes)
        for batch in reading.batches():
            yield batch, encoder.encode(batch, reject)

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
        rejects: Counter[str] = Counter()

        def reject(found: Reject) -> None:
            rejects[found.reason] += 1

        reading = self.replay.reading(item.partition, reject)
        digests: list[Any] = []
        counts: list[int] = []
        records: list[bytes] = []
        cuts = self.replay.cuts()
        for _, chunk in self.replay.chunks(reading, reject):
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
        return Replayed(item.partition.index, shards, reading.ledger(sum(counts), rejects), b"".join(records))


@dataclass(frozen=True)
class RecordOf:
    """The record of one sample: the digest of its key, then of its stored bytes; without keys, that of its bytes twice."""

    has_keys: bool

    def __call__(self, chunk: Chunk, i: int) -> bytes:
        content = self.content(chunk, i)
        return self.key(chunk, i, content) + content

    def key(self, chunk: Chunk, i: int, content: bytes | None = None) -> bytes:
        return key_digest(chunk.keys[i]) if self.has_keys else content or self.content(chunk, i)

    def content(self, chunk: Chunk, i: int) -> bytes:
        hasher = xxhash.xxh3_128()
        for piece in _pieces(chunk, i):
            hasher.update(piece)
        return hasher.digest()


@dataclass(frozen=True)
class FindReplayed:
    """Names the samples of a partition that have one of the wanted digests."""

    replay: Replay
    wanted: frozenset[bytes]
    record_of: RecordOf

    def __call__(self, item: Partition, report: Report) -> list[Found]:
        found: list[Found] = []
        counts: Counter[bytes] = Counter()
        reading = self.replay.reading(item, _ignore)
        for batch, chunk in self.replay.chunks(reading, _ignore):
            for i in range(len(chunk.keys)):
                digest = self.record_of.key(chunk, i)
                if digest in self.wanted and counts[digest] < MOST_OF_A_KEY:
                    counts[digest] += 1
                    found.append(self._found(batch, chunk, i, digest))
        return found

    def _found(self, batch: Batch, chunk: Chunk, i: int, digest: bytes) -> Found:
        key = chunk.keys[i]
        # Rejects leave the batch longer than the chunk.
        where = batch.where(batch.keys.index(key))
        return Found(digest, self.record_of.content(chunk, i), key.decode(), _values(self.replay.recipe, chunk, i), where)


def _ignore(_: Reject) -> None:
    """Rejects were counted when the partition was digested."""


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

    def finish(self) -> None:
        """Nothing is left to do."""

    def abort(self) -> None:
        """Nothing is left behind."""
