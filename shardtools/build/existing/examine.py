"""A strict look at one stored shard before it becomes part of a dataset: what it is, or why it must not."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardtools.build.existing.mds_facts import UnsoundError, mds_details
from shardtools.datasets import KEY_COLUMN, Dataset, Shard, look_at, sha256_of
from shardtools.duplicates import DigestRun, key_digest
from shardtools.engines import Progress, Report
from shardtools.errors import DamagedShardError, ShardtoolsError
from shardtools.formats import Audit, Columns, Fault, ShardFacts, StoredSample, joined_names
from shardtools.formats.mds import Mds, shard_config
from shardtools.keys import fold_key
from shardtools.manifest import ShardEntry

_REMEDY = "restore it and run the same command again"


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

    @property
    def folder(self) -> Dataset:
        """What opens the shard's file; it describes nothing."""
        return Dataset(self.uri, "", (), (), None)


@dataclass(frozen=True)
class Examined:
    """What one shard came to. ``fault`` is None for a sound one; for another only that counts."""

    candidate: Candidate
    """Its shard's format names the column that holds the keys."""
    facts: ShardFacts
    field_sets: dict[str, int]
    keys: DigestRun
    """Of every sample; empty where the shard stores no keys."""
    folded_keys: DigestRun
    is_canonical: bool
    """Laid out byte for byte as this package writes it."""
    fault: str | None = None


@dataclass(frozen=True)
class ExamineShard:
    """The task: reads every byte of a shard and writes nothing."""

    def __call__(self, item: Candidate, report: Report) -> Examined:
        try:
            return _examine(item, report)
        except UnsoundError as fault:
            sentence = f"{fault}; {_REMEDY}"
        except DamagedShardError as error:
            sentence = f"expected a sound shard, got one where {error}; {_REMEDY}"
        except ShardtoolsError as error:
            sentence = str(error)
        none = DigestRun(b"")
        return Examined(item, ShardFacts(0, "", 0, array("Q")), {}, none, none, False, fault=f"{item.place}: {sentence}")


def _examine(candidate: Candidate, report: Report) -> Examined:
    stored = candidate.folder.stored(candidate.shard)
    _check_length(candidate, len(stored))
    sha256 = sha256_of(stored, lambda num_bytes: report(Progress(0, num_bytes, 0)))
    if candidate.recorded is not None and sha256 != candidate.recorded.sha256:
        raise UnsoundError(f"expected the SHA-256 {candidate.recorded.sha256} as in the manifest, got {sha256}")
    raw = candidate.folder.unpacked(candidate.shard, stored)
    details: Mapping[str, Any] = {"name_suffix": ".gz"} if candidate.shard.compression == "gzip" else {}
    if isinstance(candidate.shard.format, Mds):
        config = shard_config(raw)
        details = mds_details(candidate.shard, config, raw, stored)
        candidate = replace(candidate, shard=_keyed(candidate, config))
    tally, is_canonical = _look(candidate, raw)
    _check_counts(candidate, tally)
    report(Progress(tally.num_samples, 0, 0))
    facts = ShardFacts(len(stored), sha256, tally.num_samples, tally.offsets, details)
    keys, folded = DigestRun.of(tally.digests), DigestRun.of(tally.folded_digests)
    return Examined(candidate, facts, dict(tally.field_sets), keys, folded, is_canonical)


def _keyed(candidate: Candidate, config: Mapping[str, Any]) -> Shard:
    """The shard, read by the key column it has: what describes it knows, else its own header shows it."""
    shard = candidate.shard
    key_column = shard.format.key_name
    if shard.entry is None and candidate.recorded is None:
        columns = dict(zip(config["column_names"], config["column_encodings"], strict=True))
        key_column = KEY_COLUMN if columns.get(KEY_COLUMN) == "str" else None
    return replace(shard, format=Mds(key_column=key_column), is_keyless=key_column is None)


def _look(candidate: Candidate, raw: memoryview) -> tuple["_Tally", bool]:
    """All samples, and whether they lie there as this package writes them. Raises UnsoundError for the first fault."""
    shard = candidate.shard
    config = None if shard.entry is None else shard.entry.config

    def look(own: bool) -> _Tally:
        audit, tally = look_at(shard, raw, lambda: Audit(_raise, own, config), lambda: _Tally(not shard.is_keyless))
        tally.offsets.append(audit.data_end)
        return tally

    try:
        return look(own=True), True
    except UnsoundError:
        if candidate.must_be_canonical:
            raise
    return look(own=False), False


class _Tally:
    """What is kept of the samples of one shard."""

    def __init__(self, has_keys: bool) -> None:
        self.offsets = array("Q")
        """Where each begins; at the end, also where the data ends."""
        self.digests: list[bytes] = []
        self.folded_digests: list[bytes] = []
        self.field_sets: Counter[str] = Counter()
        self._has_keys = has_keys

    @property
    def num_samples(self) -> int:
        return self.field_sets.total()

    def add(self, columns: Columns, raw: memoryview) -> None:
        self._add(columns.keys, columns.offsets, columns.field_sets)

    def add_sample(self, sample: StoredSample) -> None:
        key = sample.key.encode("utf-8", "surrogateescape")
        self._add([key], [sample.offset], [joined_names(list(sample.values))])

    def _add(self, keys: Sequence[bytes], offsets: Sequence[int], field_sets: Sequence[str]) -> None:
        self.offsets.extend(offsets)
        self.field_sets.update(field_sets)
        if self._has_keys:
            self.digests += map(key_digest, keys)
            self.folded_digests += [key_digest(folded) for folded in map(fold_key, keys) if folded is not None]


def _raise(fault: Fault) -> None:
    key = "" if fault.key is None else f"sample {fault.key!r}, "
    raise UnsoundError(f"{key}byte {fault.offset}: {fault.detail}")


def _check_length(candidate: Candidate, num_bytes: int) -> None:
    expected = candidate.shard.num_bytes if candidate.recorded is None else candidate.recorded.num_bytes
    if expected is not None and num_bytes != expected:
        raise UnsoundError(f"expected {expected:,} bytes, got {num_bytes:,}")


def _check_counts(candidate: Candidate, tally: _Tally) -> None:
    num_samples, expected = tally.num_samples, candidate.shard.num_samples
    if expected is not None and num_samples != expected:
        raise UnsoundError(f"expected {expected:,} samples as recorded, got {num_samples:,}")
    if num_samples == 0:
        raise UnsoundError("expected at least one sample, got none: readers stumble over an empty shard")
    if candidate.recorded is not None and dict(tally.field_sets) != candidate.recorded.field_sets:
        raise UnsoundError(f"expected samples with the fields {candidate.recorded.field_sets}, got {dict(tally.field_sets)}")
