"""A dataset against the source it was packed from: the recipe runs again, and what it makes is compared.

Whole shards are compared first: the bytes of all their samples in one digest, in the order of the plan. Only the samples of
shards that have no equal are compared one by one. Where the source is planned otherwise than it was, all samples are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from shardtools.datasets import Shard
from shardtools.digests import DigestTable
from shardtools.engines import Engine
from shardtools.errors import DuplicateKeyError, ShardtoolsError, UsageError
from shardtools.manifest import Ledger, Manifest
from shardtools.units import plural
from shardtools.verify.against._compare import RECORD_BYTES, Differences, compare
from shardtools.verify.against._recipe import Rescan, changes, rescan
from shardtools.verify.against._replay import FindReplayed, PartShards, RecordOf, Replay, Replayed, ReplayShards, ShardDigest
from shardtools.verify.against._report import report
from shardtools.verify.against._run import live_engine, results, run_each
from shardtools.verify.against._stored import AsStored, DigestSamples, DigestShards, FindStored, ShardRecords, spans
from shardtools.verify.against._unread import Unread, withheld
from shardtools.verify.findings import Findings
from shardtools.verify.options import VerifyOptions
from shardtools.verify.stored import Proof, Stored


def against_source(stored: Stored, manifest: Manifest, sources: Sequence[str], options: VerifyOptions, findings: Findings) -> Proof:
    """Replay the manifest's recipe on the sources. Raises UsageError for sources of another kind than the recipe's."""
    num_bytes = sum(shard.num_bytes or 0 for shard in stored.dataset.shards)
    try:
        with live_engine(options.workers, num_bytes, stored.num_samples) as engine:
            return _compared(stored, manifest, rescan(manifest, sources, options.tokenizer, engine), engine, findings)
    except UsageError:
        raise
    except DuplicateKeyError as error:
        findings.add("changed-source", f"expected the source as it was packed, got one that cannot be packed: {error}")
    except ShardtoolsError as error:
        findings.add("could-not-look", f"expected to replay the recipe, but {error}")
    return Proof(not_proved=("whether the samples of the source are those of the dataset, since the recipe could not be replayed",))


@dataclass
class _Sides:
    """Both sides, shard by shard, and how the samples of those without an equal are compared."""

    stored: Stored
    replay: Replay
    parts: list[PartShards]
    engine: Engine
    replayed: dict[int, Replayed] = field(default_factory=dict)
    stored_shards: list[ShardDigest | None] = field(default_factory=list)
    not_compared: tuple[str, ...] = ()
    unread: Unread = field(init=False)

    def __post_init__(self) -> None:
        self.unread = Unread(self.stored.dataset.uri)

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

    @property
    def is_in_order(self) -> bool | None:
        """Whether the dataset's shards are those of the plan; None where not all could be read as a whole."""
        if None in self.stored_shards:
            return None
        source = [shard.digest for i in range(len(self.parts)) for shard in self.replayed[i].shards]
        return source == [shard.digest for shard in self.stored_shards if shard is not None]

    def digest_shards(self) -> None:
        run_each(self.engine, ReplayShards(self.replay), self.parts, self.replayed.__setitem__)
        self.stored_shards = results(self.engine, DigestShards(self.stored.dataset), spans(self.stored))

    def unmatched(self) -> tuple[list[PartShards], list[Shard]]:
        """What is left of both sides when shards of equal samples in equal order are paired off."""
        spare = Counter(shard for shard in self.stored_shards if shard is not None)
        paired: Counter[ShardDigest] = Counter()
        parts = []
        for i, part in enumerate(self.parts):
            left_out = set()
            for k, digest in enumerate(self.replayed[i].shards):
                if spare[digest] > paired[digest]:
                    paired[digest] += 1
                    left_out.add(k)
            if len(left_out) < len(self.replayed[i].shards):
                parts.append(PartShards(part.partition, frozenset(left_out)))
        shards = []
        for shard, stored_digest in zip(self.stored.dataset.shards, self.stored_shards, strict=True):
            if stored_digest is not None and paired[stored_digest]:
                paired[stored_digest] -= 1
            else:
                shards.append(shard)
        return parts, shards

    def compare(self, parts: list[PartShards], shards: list[Shard], findings: Findings) -> Differences:
        """Compare the samples of some parts with those of some shards, and report what differs."""
        source, theirs = DigestTable(RECORD_BYTES), DigestTable(RECORD_BYTES)
        record_of, reading = RecordOf(self.has_keys), AsStored(self.replay.recipe)

        def take_source(i: int, replayed: Replayed) -> None:
            source.add(replayed.records)
            self.replayed.setdefault(parts[i].partition.index, replace(replayed, records=b""))

        def take_stored(i: int, records: ShardRecords) -> None:
            theirs.add(records.records)
            self.unread.note(shards[i], records)

        try:
            run_each(self.engine, ReplayShards(self.replay, record_of), parts, take_source)
            run_each(self.engine, DigestSamples(self.stored.dataset, reading, self.has_keys), shards, take_stored)
            differences = compare(source, theirs, findings.limit)
        finally:
            source.close()
            theirs.close()
        told, self.not_compared = withheld(differences, Unread(""), self.unread, findings)
        if told.num_missing or told.num_foreign:
            # Whether the other side has such a key at all, only all of it can tell.
            parts, shards = self.parts, list(self.stored.dataset.shards)
        if told:
            self._name(told, parts, shards, findings)
        return differences

    def _name(self, differences: Differences, parts: list[PartShards], shards: list[Shard], findings: Findings) -> None:
        wanted, reading = differences.wanted, AsStored(self.replay.recipe)
        partitions = [part.partition for part in parts]
        ours = results(self.engine, FindReplayed(self.replay, wanted, RecordOf(self.has_keys)), partitions)
        found = results(self.engine, FindStored(self.stored.dataset, reading, self.has_keys, wanted), shards)
        report(differences, chain(*ours), chain(*found), findings)


def _compared(stored: Stored, manifest: Manifest, scanned: Rescan, engine: Engine, findings: Findings) -> Proof:
    before = findings.num_added
    changed = changes(stored.dataset, manifest, scanned)
    if changed is not None:
        findings.add("changed-source", f"expected the source as it was packed, got {changed}")
    sides = _Sides(stored, Replay(scanned.recipe, scanned.roots), [PartShards(part) for part in scanned.plan.partitions], engine)
    parts, shards = sides.parts, list(stored.dataset.shards)
    if changed is None:
        sides.digest_shards()
        parts, shards = sides.unmatched()
    differences = sides.compare(parts, shards, findings) if parts or shards else Differences(0)
    is_in_order = None if changed is not None or differences else sides.is_in_order
    if is_in_order is False:
        detail = "expected the samples in the shards and the order that the recipe makes, got the same samples otherwise"
        findings.add("changed-order", detail)
    _check_ledger(manifest, sides, differences, findings)
    is_proved = findings.num_added == before
    order = {True: ", in the order of the plan", None: ""}[is_in_order] if is_proved else ""
    return _proof(sides, manifest.ledger, order, is_proved)


def _check_ledger(manifest: Manifest, sides: _Sides, differences: Differences, findings: Findings) -> None:
    """Everything that was read must have gone where the manifest says, but for the samples that findings name."""
    ledger, replayed = manifest.ledger, sides.ledger
    rejects = replayed.rejects
    for name, then, now in (
        ("filtered samples", ledger.num_filtered, replayed.num_filtered),
        ("blank lines", ledger.num_blank, replayed.num_blank),
    ):
        if then != now:
            findings.add("ledger-open", f"expected {then:,} {name}, as the manifest says, got {now:,} from the source")
    if ledger.transforms != replayed.transforms:
        detail = f"expected the counts {_plain(ledger)}, as the manifest says, got {_plain(replayed)} from the source"
        findings.add("ledger-open", detail)
    for reason in sorted(rejects.keys() | ledger.rejects.keys()):
        if rejects[reason] != ledger.rejects[reason]:
            detail = (
                f"expected {ledger.rejects[reason]:,} rejected as {reason}, as the manifest says, got {rejects[reason]:,} from the source"
            )
            findings.add("ledger-open", detail)
    # Samples that cannot be read may still be what was written.
    num_written = sides.num_samples - differences.num_missing + differences.num_foreign + (sides.unread.num_samples or 0)
    if num_written != ledger.num_stored:
        detail = f"expected {plural(ledger.num_stored, 'sample')}, as the manifest says was written, got {num_written:,} in the shards"
        findings.add("ledger-open", detail)


def _plain(ledger: Ledger) -> dict[str, dict[str, int]]:
    return {name: dict(counts) for name, counts in ledger.transforms.items()}


def _proof(sides: _Sides, ledger: Ledger, order: str, is_proved: bool) -> Proof:
    not_proved = (
        sides.not_compared
        if order
        else (
            *sides.not_compared,
            "whether the samples are in the order of the plan",
        )
    )
    if not sides.has_keys:
        not_proved += ("which sample has which key, since the dataset stores no keys",)
    if not is_proved:
        return Proof(not_proved=not_proved)
    kept, left = ("written", "filtered") if ledger.num_rows is None else ("packed", "left out")
    read = (
        f"{ledger.read_noun}s read {ledger.num_read:,} = {kept} {ledger.num_written:,} + rejected {ledger.num_rejected:,} + "
        f"{left} {ledger.num_filtered:,}"
    )
    made = plural(ledger.num_stored, ledger.stored_noun)
    return Proof(
        (
            f"The recipe was run again on the source: each of the {made} it makes is in the dataset exactly once, byte for byte{order}, "
            f"and the ledger closes: {read}.",
        ),
        not_proved,
    )
