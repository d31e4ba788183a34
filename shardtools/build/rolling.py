"""Encoded samples into shards."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shardtools.build.attempts import Meter, StagedNames
from shardtools.build.receipts import StagedShard
from shardtools.formats import Chunk, ShardFile
from shardtools.storage import ObjectWriter


class ShardRoller:
    """Rolls encoded samples into shards by exact size, and keeps what the receipt tells of them."""

    def __init__(self, names: StagedNames, budget_bytes: int, meter: Meter, split: str = "") -> None:
        self._recipe = recipe = names.terms.recipe
        self._names = names
        self._meter = meter
        self._split = split
        self._budget_bytes = budget_bytes
        self._limit_samples = recipe.limit.num_samples
        self._file: ShardFile | None = None
        self._output: ObjectWriter | None = None
        self._field_sets: Counter[str] = Counter()
        self._used_bytes = 0
        self._used_samples = 0
        self.shards: list[StagedShard] = []
        self.oversize_keys: list[str] = []
        self.num_samples = 0

    @contextmanager
    def staging(self) -> Iterator[None]:
        """What is added inside is in shards with the names that every attempt gives them when it is left; after an error in none."""
        try:
            yield
            self._finish_shard()
            self._names.demand_count(len(self.shards))
        except BaseException:
            self._abort()
            raise
        for k in range(len(self.shards)):
            self._names.stage(k)
        self._meter.flush()

    def add(self, chunk: Chunk) -> None:
        begin, num_bytes, num_samples = 0, sum(chunk.costs), len(chunk.keys)
        is_room = self._limit_samples is None or self._used_samples + num_samples <= self._limit_samples
        if is_room and self._used_bytes + num_bytes <= self._budget_bytes:
            # As nearly every chunk is: without a look at each sample.
            self._used_bytes += num_bytes
            self._used_samples += num_samples
            self._append(chunk, 0, num_samples)
            return
        for i, cost in enumerate(chunk.costs):
            if self._used_bytes + cost > self._budget_bytes or self._used_samples == self._limit_samples:
                self._append(chunk, begin, i)
                begin = i
                self._finish_shard()
                if cost > self._budget_bytes:
                    self.oversize_keys.append(chunk.keys[i].decode())
            self._used_bytes += cost
            self._used_samples += 1
        self._append(chunk, begin, len(chunk.keys))

    def _finish_shard(self) -> None:
        """Close the shard, if one is open: a shard without samples is never made."""
        if self._file is not None and self._output is not None:
            facts = self._file.finish()
            self.shards.append(StagedShard(facts, dict(self._field_sets), self._output.version, self._split))
            self._file = None
            self._field_sets = Counter()
        self._used_bytes = self._used_samples = 0

    def _abort(self) -> None:
        """Remove what this attempt wrote: after a full disk, the room is needed."""
        if self._file is not None:
            self._file.abort()
        for k in range(len(self.shards)):
            self._names.delete(k)

    def _append(self, chunk: Chunk, begin: int, end: int) -> None:
        if begin == end:
            return
        if self._file is None:
            self._output = self._names.writer(len(self.shards))
            self._file = self._recipe.format.shard_file(self._recipe.fields, self._recipe.limit.num_bytes, self._output)
        first_piece = chunk.ends[begin - 1] if begin else 0
        costs = chunk.costs[begin:end]
        self._file.append(chunk.pieces[first_piece : chunk.ends[end - 1]], costs)
        self._field_sets.update(chunk.field_sets[begin:end])
        self.num_samples += end - begin
        self._meter.add(end - begin, sum(costs))
