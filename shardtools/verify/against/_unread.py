"""What could not be read was not compared: samples without a match are no findings where it explains them."""

from dataclasses import dataclass, field, replace

from shardtools.datasets import Shard
from shardtools.units import plural
from shardtools.verify.against._compare import Differences
from shardtools.verify.against._stored import ShardRecords
from shardtools.verify.findings import Findings

_NAMED_SHARDS = 3


@dataclass
class Unread:
    """The samples of one side that could not be read."""

    uri: str
    shards: list[str] = field(default_factory=list)
    """Those that could not be read whole and may hold such samples."""
    num_samples: int | None = 0
    """How many they are; None where nothing says how many samples a shard should have."""

    def note(self, shard: Shard, records: ShardRecords) -> None:
        """Take note of a shard that was read."""
        if records.fault is None or (shard.num_samples is not None and records.num_samples >= shard.num_samples):
            return
        self.shards.append(shard.name)
        if self.num_samples is None or shard.num_samples is None:
            self.num_samples = None
        else:
            self.num_samples += shard.num_samples - records.num_samples

    def __bool__(self) -> bool:
        return bool(self.shards)

    def unexplained(self, num_unmatched: int) -> int:
        """At least how many samples of the other side cannot be among them."""
        return 0 if self and self.num_samples is None else max(num_unmatched - (self.num_samples or 0), 0)

    def __str__(self) -> str:
        """``13 samples of shard.00001.mds in URI``."""
        more = f" and {plural(len(self.shards) - _NAMED_SHARDS, 'other shard')}" if len(self.shards) > _NAMED_SHARDS else ""
        count = "samples" if self.num_samples is None else plural(self.num_samples, "sample")
        return f"{count} of {', '.join(sorted(self.shards)[:_NAMED_SHARDS])}{more} in {self.uri}"


def withheld(differences: Differences, source: Unread, stored: Unread, findings: Findings) -> tuple[Differences, tuple[str, ...]]:
    """The differences that can be told, and what was not proved. Nobody can tell which of too many unmatched samples are not there.

    Adds a finding for stored shards that could not be read whole, and for more unmatched samples than the other side has unread ones.
    """
    if stored:
        findings.add("could-not-look", f"expected to compare every sample, got shards that cannot be read whole: without the {stored}")
    if source and differences.num_foreign:
        _add_unexplained("foreign-sample", source, differences.num_foreign, findings)
        differences = replace(differences, num_foreign=0, foreign=[])
    if stored and differences.num_missing:
        _add_unexplained("missing-sample", stored, differences.num_missing, findings)
        differences = replace(differences, num_missing=0, missing=[])
    return differences, tuple(f"the {side}, which cannot be read" for side in (source, stored) if side)


def _add_unexplained(kind: str, unread: Unread, num_unmatched: int, findings: Findings) -> None:
    num = unread.unexplained(num_unmatched)
    if num:
        detail = (
            f"expected at most the {unread} without a match, since they cannot be read, got {num_unmatched:,}; which is which is unknown"
        )
        findings.add(kind, detail, num=num)
