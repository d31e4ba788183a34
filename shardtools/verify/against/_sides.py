"""The source and the dataset, shard by shard, and how the samples of those without an equal are compared."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain

from shardtools.build.planning import PlannedBuild
from shardtools.build.reading import Selected
from shardtools.datasets import Shard
from shardtools.digests import DigestTable
from shardtools.engines import Engine, Task
from shardtools.manifest import Ledger
from shardtools.verify.against._compare import RECORD_BYTES, Differences, compare
from shardtools.verify.against._order import SampleOrder
from shardtools.verify.against._replay import FindReplayed, PartShards, RecordOf, Replay, Replayed, ReplaySamples, ReplayShards, ShardDigest
from shardtools.verify.against._report import report
from shardtools.verify.against._run import results, run_each
from shardtools.verify.against._stored import AsStored, DigestSamples, DigestShards, FindStored, ShardRecords, spans
from shardtools.verify.against._unread import Unread, withheld
from shardtools.verify.findings import Findings
from shardtools.verify.stored import Stored


@dataclass
class Sides:
    """Both sides of one comparison."""

    stored: Stored
    planned: PlannedBuild
    items: list[Selected]
    """The partitions that are read, each with what is taken of it."""
    engine: Engine
    replayed: dict[int, Replayed] = field(default_factory=dict)
    stored_shards: list[ShardDigest | None] = field(default_factory=list)
    not_compared: tuple[str, ...] = ()
    unread: Unread = field(init=False)
    is_in_order: bool | None = None
    """Whether the dataset's samples have the order of the plan, and, unless they are scattered, its shards; None where nobody can tell."""

    def __post_init__(self) -> None:
        self.unread = Unread(self.stored.dataset.uri)
        self.parts = [PartShards(item) for item in self.items]
        self.replay = Replay(self.planned.plan.recipe, self.planned.roots)

    @property
    def has_keys(self) -> bool:
        return not any(shard.is_keyless for shard in self.stored.dataset.shards)

    @property
    def ledger(self) -> Ledger:
        """What the replay came to."""
        return sum((self.replayed[i].ledger for i in sorted(self.replayed)), Ledger())

    @property
    def num_samples(self) -> int:
        return sum(replayed.num_samples for replayed in self.replayed.values())

    def compare(self, is_same_plan: bool, findings: Findings) -> Differences:
        """Compare all samples of both sides, and report what differs. Without the same plan their order is not compared."""
        parts, shards = self.parts, list(self.stored.dataset.shards)
        if self.planned.is_scattered:
            return self._compare_samples(parts, shards, is_same_plan, findings)
        if is_same_plan:
            self._digest_shards()
            parts, shards = self._unmatched()
        differences = self._compare_samples(parts, shards, False, findings) if parts or shards else Differences(0)
        if is_same_plan and not differences and None not in self.stored_shards:
            source = [shard.digest for part in self.parts for shard in self.replayed[part.item.index].shards]
            self.is_in_order = source == [shard.digest for shard in self.stored_shards if shard is not None]
        return differences

    def _digest_shards(self) -> None:
        def take(_: int, replayed: Replayed) -> None:
            self.replayed[replayed.partition] = replayed

        run_each(self.engine, ReplayShards(self.replay), self.parts, take)
        self.stored_shards = results(self.engine, DigestShards(self.stored.dataset), spans(self.stored))

    def _unmatched(self) -> tuple[list[PartShards], list[Shard]]:
        """What is left of both sides when shards of equal samples in equal order are paired off."""
        spare = Counter(shard for shard in self.stored_shards if shard is not None)
        paired: Counter[ShardDigest] = Counter()
        parts = []
        for part in self.parts:
            left_out, own = set(), self.replayed[part.item.index].shards
            for k, digest in enumerate(own):
                if spare[digest] > paired[digest]:
                    paired[digest] += 1
                    left_out.add(k)
            if len(left_out) < len(own):
                parts.append(PartShards(part.item, frozenset(left_out)))
        shards = []
        for shard, stored_digest in zip(self.stored.dataset.shards, self.stored_shards, strict=True):
            if stored_digest is not None and paired[stored_digest]:
                paired[stored_digest] -= 1
            else:
                shards.append(shard)
        return parts, shards

    def _compare_samples(self, parts: list[PartShards], shards: list[Shard], with_order: bool, findings: Findings) -> Differences:
        """Compare the samples of some parts with those of some shards, one by one, and report what differs."""
        both = [_Taken(DigestTable(RECORD_BYTES), SampleOrder(self.replay.splits)) for _ in range(2)]
        source, theirs = both
        reading = AsStored(self.replay.recipe)

        def take_source(_: int, replayed: Replayed) -> None:
            source.table.add(replayed.records)
            for split, places in zip(self.replay.splits, replayed.places, strict=False):
                source.order.add(split, places)
            self.replayed.setdefault(replayed.partition, replace(replayed, records=b"", places=()))

        def take_stored(i: int, records: ShardRecords) -> None:
            theirs.table.add(records.records)
            if with_order:
                theirs.order.add_shard(shards[i].split, i, len(shards), records.records)
            self.unread.note(shards[i], records)

        try:
            run_each(self.engine, self._task(), parts, take_source)
            run_each(self.engine, DigestSamples(self.stored.dataset, reading, self.has_keys), shards, take_stored)
            differences = compare(source.table, theirs.table, findings.limit)
            if with_order and not differences and not self.unread:
                self.is_in_order = source.order.digests() == theirs.order.digests()
        finally:
            for side in both:
                side.close()
        told, self.not_compared = withheld(differences, Unread(""), self.unread, findings)
        if told.num_missing or told.num_foreign:
            # Whether the other side has such a key at all, only all of it can tell.
            parts, shards = self.parts, list(self.stored.dataset.shards)
        if told:
            self._name(told, parts, shards, findings)
        return differences

    def _task(self) -> Task:
        record_of = RecordOf(self.has_keys)
        if not self.planned.is_scattered:
            return ReplayShards(self.replay, record_of)
        return ReplaySamples(self.replay, record_of, len(self.planned.plan.partitions), self.planned.is_permuted)

    def _name(self, differences: Differences, parts: list[PartShards], shards: list[Shard], findings: Findings) -> None:
        wanted, reading = differences.wanted, AsStored(self.replay.recipe)
        items = [part.item for part in parts]
        ours = results(self.engine, FindReplayed(self.replay, wanted, RecordOf(self.has_keys)), items)
        found = results(self.engine, FindStored(self.stored.dataset, reading, self.has_keys, wanted), shards)
        report(differences, chain(*ours), chain(*found), findings)


@dataclass(frozen=True)
class _Taken:
    """What is kept of one side."""

    table: DigestTable
    order: SampleOrder

    def close(self) -> None:
        self.table.close()
        self.order.close()
