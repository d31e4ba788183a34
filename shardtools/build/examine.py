"""A strict look at one stored shard before it becomes part of a dataset: what it is, or why it must not."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardtools.build.mds_facts import UnsoundError, mds_details
from shardtools.datasets import Dataset, Shard
from shardtools.duplicates import DigestRun, key_digest
from shardtools.engines import Progress, Report
from shardtools.errors import DamagedShardError, ShardtoolsError
from shardtools.formats import Audit, Fault, ShardFacts, UnprovenError, joined_names
from shardtools.formats.mds import Mds, shard_config
from shardtools.keys import fold_key
from shardtools.manifest import ShardEntry

KEY_COLUMN = "key"
"""The ``str`` column that is taken for the keys of a foreign MDS dataset."""
_HASHED_BYTES = 1 << 20
_REPORTED_BYTES = 8 << 20


@dataclass(frozen=True)
class Candidate:
    """One shard to look at."""

    uri: str
    """The dataset's folder."""
    shard: Shard
    recorded: ShardEntry | None = None
    """What a manifest says of it."""
    must_be_canonical: bool = False

    @property
    def place(self) -> str:
        return f"{self.uri}/{self.shard.name}"


@dataclass(frozen=True)
class Examined:
    """What one shard came to. ``fault`` is None for a sound one; for another only that counts."""

    candidate: Candidate
    facts: ShardFacts
    field_sets: dict[str, int]
    keys: DigestRun
    """Of every sample; empty where the shard stores no keys."""
    folded_keys: DigestRun
    is_canonical: bool
    """Laid out byte for byte as this package writes it."""
    key_column: str | None = None
    """The column that holds the keys, for MDS."""
    fault: str | None = None


@dataclass(frozen=True)
class ExamineShard:
    """The task: reads every byte of a shard and writes nothing."""

    def __call__(self, item: Candidate, report: Report) -> Examined:
        try:
            return _examine(item, report)
        except UnsoundError as fault:
            sentence = str(fault)
        except DamagedShardError as error:
            sentence = f"expected a sound shard, got one where {error}"
        except ShardtoolsError as error:
            sentence = str(error)
        none = DigestRun(b"")
        return Examined(item, ShardFacts(0, "", 0, array("Q")), {}, none, none, False, fault=f"{item.place}: {sentence}")


def _examine(candidate: Candidate, report: Report) -> Examined:
    shard = candidate.shard
    opened = Dataset(candidate.uri, "", (), (), None)
    stored = opened.stored(shard)
    _check_length(candidate, len(stored))
    sha256 = _sha256(stored, report)
    if candidate.recorded is not None and sha256 != candidate.recorded.sha256:
        raise UnsoundError(f"expected the SHA-256 {candidate.recorded.sha256} as in the manifest, got {sha256}")
    raw = opened.unpacked(shard, stored)
    details: Mapping[str, Any] = {"name_suffix": ".gz"} if shard.compression == "gzip" else {}
    key_column: str | None = None
    if isinstance(shard.format, Mds):
        config = shard_config(raw)
        details = mds_details(shard, config, raw, stored)
        is_described = shard.entry is not None or candidate.recorded is not None
        key_column = shard.format.key_column if is_described else _key_column(config)
    look, is_canonical = _Look(shard, key_column), True
    try:
        look.run(raw, own=True)
    except UnsoundError:
        if candidate.must_be_canonical:
            raise
        look, is_canonical = _Look(shard, key_column), False
        look.run(raw, own=False)
    _check_counts(candidate, look)
    report(Progress(len(look.offsets) - 1, 0, 0))
    facts = ShardFacts(len(stored), sha256, len(look.offsets) - 1, look.offsets, details)
    keys, folded = DigestRun.of(look.digests), DigestRun.of(look.folded_digests)
    return Examined(candidate, facts, dict(look.field_sets), keys, folded, is_canonical, key_column)


@dataclass
class _Look:
    """The strict parse of one shard, up to its first fault."""

    shard: Shard
    key_column: str | None
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    digests: list[bytes] = field(default_factory=list)
    folded_digests: list[bytes] = field(default_factory=list)
    field_sets: Counter[str] = field(default_factory=Counter)

    def run(self, raw: memoryview, own: bool) -> None:
        """Raises UnsoundError."""
        data_end = self._quick(raw, own)
        if data_end is None:
            for samples in (self.offsets, self.digests, self.folded_digests):
                del samples[:]
            self.field_sets.clear()
            data_end = self._slow(raw, own)
        self.offsets.append(data_end)

    def _quick(self, raw: memoryview, own: bool) -> int | None:
        """Where the data ends; None where only the slow look can tell whether the shard is sound."""
        audit = self._audit(own)
        try:
            for columns in self._format.columns(raw, audit):
                self._add(columns.keys, columns.offsets, columns.field_sets)
        except UnprovenError:
            return None
        return audit.data_end

    def _slow(self, raw: memoryview, own: bool) -> int:
        audit = self._audit(own)
        for sample in self._format.audit(raw, audit):
            key = sample.key.encode("utf-8", "surrogateescape")
            self._add([key], [sample.offset], [joined_names(list(sample.values))])
        return audit.data_end

    @property
    def _format(self) -> Any:
        return Mds(key_column=self.key_column) if isinstance(self.shard.format, Mds) else self.shard.format

    @property
    def _is_keyless(self) -> bool:
        return isinstance(self.shard.format, Mds) and self.key_column is None

    def _audit(self, own: bool) -> Audit:
        return Audit(_raise, own, None if self.shard.entry is None else self.shard.entry.config)

    def _add(self, keys: Sequence[bytes], offsets: Sequence[int], field_sets: Sequence[str]) -> None:
        self.offsets.extend(offsets)
        self.field_sets.update(field_sets)
        if not self._is_keyless:
            self.digests += map(key_digest, keys)
            self.folded_digests += [key_digest(folded) for folded in map(fold_key, keys) if folded is not None]


def _raise(fault: Fault) -> None:
    key = "" if fault.key is None else f"sample {fault.key!r}, "
    raise UnsoundError(f"{key}byte {fault.offset}: {fault.detail}")


def _key_column(config: Mapping[str, Any]) -> str | None:
    columns = dict(zip(config["column_names"], config["column_encodings"], strict=True))
    return KEY_COLUMN if columns.get(KEY_COLUMN) == "str" else None


def _check_length(candidate: Candidate, num_bytes: int) -> None:
    expected = candidate.shard.num_bytes if candidate.recorded is None else candidate.recorded.num_bytes
    if expected is not None and num_bytes != expected:
        raise UnsoundError(f"expected {expected:,} bytes, got {num_bytes:,}")


def _check_counts(candidate: Candidate, look: _Look) -> None:
    num_samples, expected = len(look.offsets) - 1, candidate.shard.num_samples
    if expected is not None and num_samples != expected:
        raise UnsoundError(f"expected {expected:,} samples as recorded, got {num_samples:,}")
    if num_samples == 0:
        raise UnsoundError("expected at least one sample, got none: readers stumble over an empty shard")
    if candidate.recorded is not None and dict(look.field_sets) != candidate.recorded.field_sets:
        raise UnsoundError(f"expected samples with the fields {candidate.recorded.field_sets}, got {dict(look.field_sets)}")


def _sha256(stored: memoryview, report: Report) -> str:
    digest = hashlib.sha256()
    for begin in range(0, len(stored), _REPORTED_BYTES):
        block = stored[begin : begin + _REPORTED_BYTES]
        for piece in range(0, len(block), _HASHED_BYTES):
            digest.update(block[piece : piece + _HASHED_BYTES])
        report(Progress(0, len(block), 0))
    return digest.hexdigest()
