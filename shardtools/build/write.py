"""One worker's work: build one partition, leave its shards staged and a receipt."""

import os
import time
from collections import Counter
from dataclasses import dataclass, field

from shardtools.build.reading import Reading
from shardtools.build.receipts import BuildNames, Receipt, StagedShard
from shardtools.duplicates import DigestRun, key_digest
from shardtools.engines import Progress, Report
from shardtools.errors import BadSampleError
from shardtools.formats import Chunk, Encoder, ShardFile
from shardtools.keys import fold_key
from shardtools.plan import Partition, Recipe
from shardtools.sample import Reject
from shardtools.storage import ObjectWriter, Storage, open_storage
from shardtools.units import Budget

_REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class BuildTask:
    """Builds partitions of one plan; runs anywhere that sees the inputs and the destination."""

    recipe: Recipe
    plan_digest: str
    roots: tuple[str, ...]
    destination: str
    budget: Budget

    def __call__(self, item: Partition, report: Report) -> None:
        partition = item
        storage = open_storage(self.destination)
        recipe = self.recipe
        names = BuildNames(self.plan_digest)
        rejects = _Rejects(self.budget)
        encoder = recipe.format.encoder(recipe.fields, recipe.limit.num_bytes)
        writer = _PartitionWriter(recipe, encoder, _Parts(storage, names, partition.index), _Meter(report, rejects))
        reading = Reading(recipe, self.roots, partition, rejects)
        try:
            for batch in reading.batches():
                writer.add(encoder.encode(batch, rejects))
            writer.finish_shard()
        except BaseException:
            writer.abort()
            raise
        writer.stage()
        receipt = Receipt(
            partition=partition.index,
            plan_digest=self.plan_digest,
            inputs_digest=partition.inputs_digest(),
            shards=tuple(writer.shards),
            ledger=reading.ledger(writer.num_samples, Counter(reject.reason for reject in rejects.found)),
            rejects=tuple(rejects.found),
            oversize_keys=tuple(writer.oversize_keys),
            keys=DigestRun.of(reading.digests if recipe.transforms else writer.digests),
            folded_keys=DigestRun.of(writer.folded_digests),
        )
        storage.put(names.receipt(partition.index), receipt.serialize())


@dataclass
class _Rejects:
    """The sink of one partition: keeps what is rejected, stops when that is too much."""

    budget: Budget
    found: list[Reject] = field(default_factory=list)

    def __call__(self, reject: Reject) -> None:
        self.found.append(reject)
        if not self.budget.allows_so_far(len(self.found)):
            raise over_budget(self.budget, reject)


def over_budget(budget: Budget, last: Reject) -> BadSampleError:
    """The error that ends a run with too many bad samples; names the last of them."""
    allowed = "" if str(budget) == "0" else f" (and more than the {budget} that --max-bad allows)"
    tolerate = "; --max-bad N sets up to N such samples aside" if str(budget) == "0" else ""
    return BadSampleError(f"bad sample{allowed}: {last.where}: {last.sentence}{tolerate}")


@dataclass
class _Meter:
    """Reports what was done a few times a second."""

    report: Report
    rejects: _Rejects
    num_samples: int = 0
    num_bytes: int = 0
    num_reported_rejects: int = 0
    next_time: float = field(default_factory=lambda: time.monotonic() + _REPORT_SECONDS)

    def add(self, num_samples: int, num_bytes: int) -> None:
        self.num_samples += num_samples
        self.num_bytes += num_bytes
        if time.monotonic() >= self.next_time:
            self.flush()

    def flush(self) -> None:
        num_rejects = len(self.rejects.found)
        self.report(Progress(self.num_samples, self.num_bytes, num_rejects - self.num_reported_rejects))
        self.num_samples = self.num_bytes = 0
        self.num_reported_rejects = num_rejects
        self.next_time = time.monotonic() + _REPORT_SECONDS


@dataclass(frozen=True)
class _Parts:
    """The shards of one attempt at a partition, by their order in it."""

    storage: Storage
    names: BuildNames
    partition: int
    attempt: str = field(default_factory=lambda: os.urandom(8).hex())

    def writer(self, k: int) -> ObjectWriter:
        return self.storage.writer(self._temporary(k))

    def stage(self, k: int) -> None:
        self.storage.move(self._temporary(k), self.names.staged(self.partition, k))

    def delete(self, k: int) -> None:
        self.storage.delete(self._temporary(k))

    def _temporary(self, k: int) -> str:
        return self.names.temporary(self.partition, self.attempt, k)


class _PartitionWriter:
    """Rolls encoded samples into shards by exact size."""

    def __init__(self, recipe: Recipe, encoder: Encoder, parts: _Parts, meter: _Meter) -> None:
        self._recipe = recipe
        self._parts = parts
        self._meter = meter
        self._budget_bytes = encoder.budget_bytes
        self._limit_samples = recipe.limit.num_samples
        self._file: ShardFile | None = None
        self._field_sets: Counter[str] = Counter()
        self._used_bytes = 0
        self._used_samples = 0
        self.shards: list[StagedShard] = []
        self.digests: list[bytes] = []
        self.folded_digests: list[bytes] = []
        self.oversize_keys: list[str] = []
        self.num_samples = 0

    def add(self, chunk: Chunk) -> None:
        begin = 0
        for i, cost in enumerate(chunk.costs):
            if self._used_bytes + cost > self._budget_bytes or self._used_samples == self._limit_samples:
                self._append(chunk, begin, i)
                begin = i
                self.finish_shard()
                if cost > self._budget_bytes:
                    self.oversize_keys.append(chunk.keys[i].decode())
            self._used_bytes += cost
            self._used_samples += 1
        self._append(chunk, begin, len(chunk.keys))
        self.digests += map(key_digest, chunk.keys)
        self.folded_digests += [key_digest(folded) for folded in map(fold_key, chunk.keys) if folded is not None]

    def finish_shard(self) -> None:
        """Close the shard, if one is open: a shard without samples is never made."""
        if self._file is not None:
            self.shards.append(StagedShard(self._file.finish(), dict(self._field_sets)))
            self._file = None
            self._field_sets = Counter()
        self._used_bytes = self._used_samples = 0

    def stage(self) -> None:
        """Give the attempt's shards the names that every attempt gives them."""
        for k in range(len(self.shards)):
            self._parts.stage(k)
        self._meter.flush()

    def abort(self) -> None:
        """Remove what this attempt wrote: after a full disk, the room is needed."""
        if self._file is not None:
            self._file.abort()
        for k in range(len(self.shards)):
            self._parts.delete(k)

    def _append(self, chunk: Chunk, begin: int, end: int) -> None:
        if begin == end:
            return
        if self._file is None:
            output = self._parts.writer(len(self.shards))
            self._file = self._recipe.format.shard_file(self._recipe.fields, self._recipe.limit.num_bytes, output)
        first_piece = chunk.ends[begin - 1] if begin else 0
        costs = chunk.costs[begin:end]
        self._file.append(chunk.pieces[first_piece : chunk.ends[end - 1]], costs)
        self._field_sets.update(chunk.field_sets[begin:end])
        self.num_samples += end - begin
        self._meter.add(end - begin, sum(costs))
