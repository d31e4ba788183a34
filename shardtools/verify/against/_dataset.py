"""A dataset against another one: the same keys with the same values, in any order and either format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from shardtools.datasets import Dataset
from shardtools.digests import DigestTable
from shardtools.engines import Engine
from shardtools.units import plural
from shardtools.verify.against._canonical_reading import Canonical
from shardtools.verify.against._compare import RECORD_BYTES, compare
from shardtools.verify.against._report import report
from shardtools.verify.against._run import live_engine, results, run_each
from shardtools.verify.against._samples import Found
from shardtools.verify.against._stored import DigestSamples, FindStored, Reading, ShardRecords
from shardtools.verify.against._unread import Unread, withheld
from shardtools.verify.against._views import mapped
from shardtools.verify.findings import Findings
from shardtools.verify.stored import Proof, Stored


@dataclass(frozen=True)
class _Side:
    """One of the two datasets, and how its samples are read."""

    dataset: Dataset
    reading: Reading
    has_keys: bool

    def digest(self, engine: Engine, table: DigestTable, take: Callable[[int, ShardRecords], None]) -> None:
        def taken(i: int, records: ShardRecords) -> None:
            table.add(records.records)
            take(i, records)

        run_each(engine, DigestSamples(self.dataset, self.reading, self.has_keys), self.dataset.shards, taken)

    def find(self, engine: Engine, wanted: frozenset[bytes]) -> Sequence[list[Found]]:
        return results(engine, FindStored(self.dataset, self.reading, self.has_keys, wanted), self.dataset.shards)


def against_dataset(stored: Stored, other: Dataset, workers: int | None, findings: Findings) -> Proof:
    """Compare every sample of both, by key and by what its fields mean."""
    ours, theirs = mapped(other, stored.dataset)
    has_keys = not any(shard.is_keyless for shard in (*other.shards, *stored.dataset.shards))
    expected, got = _Side(other, Canonical(ours), has_keys), _Side(stored.dataset, Canonical(theirs), has_keys)
    before = findings.num_added
    unread, lost = Unread(other.uri), Unread(stored.dataset.uri)
    num_bytes = sum(shard.num_bytes or 0 for shard in (*other.shards, *stored.dataset.shards))

    def note_damage(i: int, records: ShardRecords) -> None:
        if records.fault is not None:
            shard = other.shards[i]
            findings.add("could-not-look", f"expected to read {shard.name} of {other.uri} whole, but {records.fault}")
            unread.note(shard, records)

    source, table = DigestTable(RECORD_BYTES), DigestTable(RECORD_BYTES)
    try:
        with live_engine(workers, num_bytes, stored.num_samples) as engine:
            expected.digest(engine, source, note_damage)
            got.digest(engine, table, lambda i, records: lost.note(stored.dataset.shards[i], records))
            differences, not_compared = withheld(compare(source, table, findings.limit), unread, lost, findings)
            if differences:
                wanted = differences.wanted
                report(differences, chain(*expected.find(engine, wanted)), chain(*got.find(engine, wanted)), findings)
    finally:
        source.close()
        table.close()
    proof = _proof(other, stored, has_keys, findings.num_added == before)
    paths = sorted(ours.own.left_out | theirs.own.left_out)
    not_compared += (f"the paths in {', '.join(paths)}, in whose place MDS has the files",) if paths else ()
    return Proof(proof.proved, (*not_compared, *proof.not_proved))


def _proof(other: Dataset, stored: Stored, has_keys: bool, is_proved: bool) -> Proof:
    not_proved: tuple[str, ...] = ("whether both datasets have their samples in the same order",)
    if not has_keys:
        not_proved += ("which sample has which key, since one of the two stores no keys: samples were told by their content",)
    if any(shard.split for shard in (*other.shards, *stored.dataset.shards)):
        not_proved += ("whether each sample is in the same split of both",)
    if other.format_name != stored.dataset.format_name:
        not_proved += ("whether what is empty in MDS was empty or absent, which its columns cannot tell",)
    if not is_proved:
        return Proof(not_proved=not_proved)
    by = "each under its key and with equal values in every field" if has_keys else "each with equal values in every field"
    return Proof(
        (f"The {plural(stored.num_samples, 'sample')} of {other.uri} are in the dataset exactly once, {by}, and no others.",), not_proved
    )
