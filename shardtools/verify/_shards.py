"""Levels 2 and 3 for one shard: its digests and every one of its bytes. Runs in a worker process."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import xxhash

from shardtools.datasets import Dataset, Shard
from shardtools.duplicates import DigestRun, key_digest
from shardtools.engines import Progress, Report
from shardtools.errors import DamagedShardError, StorageError, UsageError
from shardtools.formats import Audit, Fault, joined_names
from shardtools.manifest import OFFSETS_NAME, ShardEntry
from shardtools.verify.findings import Finding, Findings

_HASHED_BYTES = 8 << 20
_REPORTED_SAMPLES = 10_000
_OFFSET_BYTES = 8


@dataclass(frozen=True)
class ShardItem:
    """One shard to check."""

    shard: Shard
    offsets_begin: int | None
    """Where the shard's offsets lie in the offsets file; None where there are none to compare with."""


@dataclass(frozen=True)
class ShardReport:
    """What one shard came to."""

    shard: Shard
    findings: tuple[Finding, ...]
    num_samples: int
    keys: DigestRun
    unchecked: frozenset[str]


@dataclass(frozen=True)
class CheckShard:
    """Checks shards of one dataset; keeps on after everything it finds."""

    dataset: Dataset
    max_findings: int

    def __call__(self, item: ShardItem, report: Report) -> ShardReport:
        check = _Check(self.dataset, item, Findings(self.max_findings), report)
        try:
            check.run()
        except DamagedShardError as error:
            check.findings.add(
                "damaged-shard", f"expected a sound shard, got one where {error.message}", item.shard.name, offset=error.offset
            )
        except (StorageError, UsageError) as error:
            check.findings.add("could-not-look", str(error), item.shard.name)
        return ShardReport(item.shard, check.findings.all(), check.num_samples, DigestRun.of(check.digests), frozenset(check.unchecked))


@dataclass
class _Check:
    dataset: Dataset
    item: ShardItem
    findings: Findings
    report: Report
    num_samples: int = 0
    digests: list[bytes] = field(default_factory=list)
    field_sets: Counter[str] = field(default_factory=Counter)
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    unchecked: set[str] = field(default_factory=set)

    @property
    def recorded(self) -> ShardEntry | None:
        """What the manifest says of the shard."""
        manifest = self.dataset.manifest
        return None if manifest is None else manifest.shards[self.item.shard.index]

    def run(self) -> None:
        shard = self.item.shard
        stored = self.dataset.stored(shard)
        self._check_sha256(stored)
        raw = self.dataset.unpacked(shard, stored)
        self._check_hashes(stored, raw)
        audit = Audit(
            on_fault=self._on_fault,
            own=self.dataset.manifest is not None,
            config=None if shard.entry is None else shard.entry.config,
        )
        for key, offset, names in self._samples(raw, audit):
            self.num_samples += 1
            self.offsets.append(offset)
            self.field_sets[names] += 1
            if not shard.is_keyless:
                self.digests.append(key_digest(key.encode("utf-8", "surrogateescape")))
            if self.num_samples % _REPORTED_SAMPLES == 0:
                self.report(Progress(_REPORTED_SAMPLES, 0, 0))
        self.report(Progress(self.num_samples % _REPORTED_SAMPLES, 0, 0))
        self.unchecked = audit.unchecked
        # Where reading stopped early, every count would differ: that is one finding, not four.
        if audit.is_whole:
            self.offsets.append(audit.data_end)
            self._check_counts()
            self._check_offsets()

    def _samples(self, raw: memoryview, audit: Audit) -> Iterator[tuple[str, int, str]]:
        shard = self.item.shard
        for sample in self.dataset.named(shard, shard.format.audit(raw, audit)):
            yield sample.key, sample.offset, joined_names(list(sample.values))

    def _on_fault(self, fault: Fault) -> None:
        self.findings.add(fault.kind, fault.detail, self.item.shard.name, fault.key, fault.offset)

    def _check_sha256(self, stored: memoryview) -> None:
        """The whole file, unless its size is wrong: then it was found already."""
        recorded = self.recorded
        if recorded is None or len(stored) != recorded.num_bytes:
            self.report(Progress(0, len(stored), 0))
            return
        digest = hashlib.sha256()
        for begin in range(0, len(stored), _HASHED_BYTES):
            block = stored[begin : begin + _HASHED_BYTES]
            digest.update(block)
            self.report(Progress(0, len(block), 0))
        if digest.hexdigest() != recorded.sha256:
            detail = f"expected the SHA-256 {recorded.sha256}, got {digest.hexdigest()}"
            self.findings.add("wrong-sha256", detail, self.item.shard.name)

    def _check_hashes(self, stored: memoryview, raw: memoryview) -> None:
        """The hashes ``index.json`` records, of the algorithms that are known here."""
        entry = self.item.shard.entry
        if entry is None:
            return
        is_compressed = self.item.shard.compression is not None
        for file, data in [(entry.raw, raw)] + ([(entry.compressed, stored)] if is_compressed and entry.compressed else []):
            for name, expected in file.hashes.items():
                actual = _hash(name, data)
                if actual is not None and actual != expected:
                    self.findings.add("wrong-hash", f"expected the {name} {expected} of {file.name}, got {actual}", self.item.shard.name)

    def _check_counts(self) -> None:
        shard, recorded = self.item.shard, self.recorded
        if shard.num_samples is not None and self.num_samples != shard.num_samples:
            self.findings.add("wrong-count", f"expected {shard.num_samples:,} samples, got {self.num_samples:,}", shard.name)
        if recorded is not None and dict(self.field_sets) != recorded.field_sets:
            detail = f"expected samples with the fields {recorded.field_sets}, got {dict(self.field_sets)}"
            self.findings.add("wrong-field-sets", detail, shard.name)

    def _check_offsets(self) -> None:
        begin = self.item.offsets_begin
        if begin is None:
            return
        file = self.dataset.stored_file(OFFSETS_NAME)
        recorded = array("Q", bytes(file[begin : begin + _OFFSET_BYTES * len(self.offsets)]))
        if recorded != self.offsets:
            i = next((i for i, pair in enumerate(zip(recorded, self.offsets, strict=False)) if pair[0] != pair[1]), len(recorded))
            got = recorded[i] if i < len(recorded) else "none"
            detail = f"expected the offset {self.offsets[i]} for sample {i} of {self.item.shard.name}, got {got}"
            self.findings.add("wrong-offsets", detail, OFFSETS_NAME, offset=begin + _OFFSET_BYTES * i)


def _hash(name: str, data: memoryview) -> str | None:
    """None for an algorithm that is not known here."""
    if name in ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"):
        return str(getattr(xxhash, name)(data).hexdigest())
    if name not in hashlib.algorithms_available or name.startswith("shake"):
        return None
    return hashlib.new(name, data).hexdigest()
