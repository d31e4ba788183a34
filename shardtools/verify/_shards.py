"""Levels 2 and 3 for one shard: its digests and every one of its bytes. Runs in a worker process."""

from collections import Counter
from dataclasses import dataclass, field, replace

from shardtools.datasets import Dataset, Shard, look_at, named_hash, sha256_of
from shardtools.engines import Progress, Report
from shardtools.errors import DamagedShardError, StorageError, UsageError
from shardtools.formats import Audit, Fault
from shardtools.manifest import OFFSETS_NAME, ShardEntry
from shardtools.verify._offsets import OFFSET_BYTES
from shardtools.verify._tally import Tally
from shardtools.verify.findings import Finding, Findings
from shardtools.verify.options import VerifyOptions


@dataclass(frozen=True)
class ShardItem:
    """One shard to check."""

    shard: Shard
    num_bytes: int
    """The stored file's length."""
    offsets_place: tuple[int, int] | None
    """Bytes of the offsets file in which the shard's offsets lie; None where there are none to compare with."""


@dataclass(frozen=True)
class ShardReport:
    """What one shard came to."""

    shard: Shard
    findings: tuple[Finding, ...]
    num_samples: int
    num_bytes: int
    """The stored file's length."""
    keys: bytes
    """A record of ``stored.RECORD_BYTES`` for each sample, of the digest of its key."""
    contents: bytes
    """The same of the digest of its content; empty unless that was asked for."""
    unchecked: frozenset[str]
    token_counts: Counter[str] = field(default_factory=Counter)
    """What the rows of tokens come to, where samples are such rows."""
    pieces: bytes = b""
    """A record for each piece of a document in them, where they say so."""


@dataclass(frozen=True)
class CheckShard:
    """Checks shards of one dataset; keeps on after everything it finds."""

    dataset: Dataset
    options: VerifyOptions

    def __call__(self, item: ShardItem, report: Report) -> ShardReport:
        check = _Check(self.dataset, item, self.options, Findings(self.options.max_findings), report)
        tally = Tally(self.dataset, item.shard, self.options)
        try:
            tally = check.run()
        except DamagedShardError as error:
            check.findings.add(
                "damaged-shard", f"expected a sound shard, got one where {error.message}", item.shard.name, offset=error.offset
            )
        except (StorageError, UsageError) as error:
            check.findings.add("could-not-look", str(error), item.shard.name)
        index = item.shard.index
        report_of = ShardReport(
            shard=item.shard,
            findings=check.findings.all(),
            num_samples=tally.num_samples,
            num_bytes=item.num_bytes,
            keys=tally.key_records(index),
            contents=tally.content_records(index),
            unchecked=frozenset(tally.unchecked),
        )
        if tally.tokens is None:
            return report_of
        return replace(report_of, token_counts=tally.tokens.counts, pieces=bytes(tally.tokens.pieces))


@dataclass
class _Check:
    dataset: Dataset
    item: ShardItem
    options: VerifyOptions
    findings: Findings
    report: Report

    @property
    def recorded(self) -> ShardEntry | None:
        """What the manifest says of the shard."""
        manifest = self.dataset.manifest
        return None if manifest is None else manifest.shards[self.item.shard.index]

    def run(self) -> Tally:
        shard = self.item.shard
        stored = self.dataset.stored(shard)
        self._check_sha256(stored)
        raw = self.dataset.unpacked(shard, stored)
        self._check_hashes(stored, raw)
        audit, tally = look_at(shard, raw, self._audit, lambda: Tally(self.dataset, shard, self.options))
        tally.unchecked |= audit.unchecked
        for fault in tally.faults:
            self._on_fault(fault)
        self.report(Progress(tally.num_samples, 0, 0))
        if self.dataset.storage.num_bytes(shard.name) != len(stored):
            detail = "expected the file to stay as it is while it is looked at, got another length"
            self.findings.add("could-not-look", detail, shard.name)
        # Where reading stopped early, every count would differ: that is one finding, not four.
        if audit.is_whole:
            tally.offsets.append(audit.data_end)
            self._check_counts(tally)
            self._check_offsets(tally)
        return tally

    def _audit(self) -> Audit:
        entry = self.item.shard.entry
        own = self.dataset.manifest is not None and self.dataset.manifest.is_canonical
        return Audit(on_fault=self._on_fault, own=own, config=None if entry is None else entry.config)

    def _on_fault(self, fault: Fault) -> None:
        self.findings.add(fault.kind, fault.detail, self.item.shard.name, fault.key, fault.offset)

    def _check_sha256(self, stored: memoryview) -> None:
        """The whole file, unless its size is wrong: then it was found already."""
        recorded = self.recorded
        if recorded is None or len(stored) != recorded.num_bytes:
            self.report(Progress(0, len(stored), 0))
            return
        actual = sha256_of(stored, lambda num_bytes: self.report(Progress(0, num_bytes, 0)))
        if actual != recorded.sha256:
            self.findings.add("wrong-sha256", f"expected the SHA-256 {recorded.sha256}, got {actual}", self.item.shard.name)

    def _check_hashes(self, stored: memoryview, raw: memoryview) -> None:
        """The hashes ``index.json`` records, of the algorithms that are known here."""
        entry = self.item.shard.entry
        if entry is None:
            return
        # Of an unpacked shard the compressed form need not be there.
        forms = (raw,) if self.item.shard.compression is None else (raw, stored)
        for file, data in zip(entry.files, forms, strict=False):
            for name, expected in file.hashes.items():
                actual = named_hash(name, data)
                if actual is not None and actual != expected:
                    self.findings.add("wrong-hash", f"expected the {name} {expected} of {file.name}, got {actual}", self.item.shard.name)

    def _check_counts(self, tally: Tally) -> None:
        shard, recorded = self.item.shard, self.recorded
        if shard.num_samples is not None and tally.num_samples != shard.num_samples:
            self.findings.add("wrong-count", f"expected {shard.num_samples:,} samples, got {tally.num_samples:,}", shard.name)
        if recorded is not None and dict(tally.field_sets) != recorded.field_sets:
            detail = f"expected samples with the fields {recorded.field_sets}, got {dict(tally.field_sets)}"
            self.findings.add("wrong-field-sets", detail, shard.name)

    def _check_offsets(self, tally: Tally) -> None:
        place, offsets = self.item.offsets_place, tally.offsets
        if place is None:
            return
        begin, end = place
        # Where samples are missing at the end that is a finding of its own.
        end = min(end, begin + OFFSET_BYTES * len(offsets))
        recorded = memoryview(self.dataset.part_of(OFFSETS_NAME, begin, end)).cast("Q")
        if recorded != memoryview(offsets):
            i = next((i for i, pair in enumerate(zip(recorded, offsets, strict=False)) if pair[0] != pair[1]), len(recorded))
            got = recorded[i] if i < len(recorded) else "none"
            detail = f"expected the offset {offsets[i]} for sample {i} of {self.item.shard.name}, got {got}"
            self.findings.add("wrong-offsets", detail, OFFSETS_NAME, offset=begin + OFFSET_BYTES * i)
