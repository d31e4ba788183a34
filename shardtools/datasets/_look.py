"""The strict look at one shard: quick where that can say that the shard is sound, else slow and exact."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from shardtools.datasets._dataset import Shard
from shardtools.datasets._unpack import let_go
from shardtools.formats import Audit, Columns, StoredSample, UnprovenError

_SEEN_BYTES = 32 << 20


class Tally(Protocol):
    """What is kept of the samples. It comes to the same by columns or sample by sample."""

    def add(self, columns: Columns, raw: memoryview) -> None:
        """Neighbouring samples, whose values lie in ``raw``."""

    def add_sample(self, sample: StoredSample) -> None:
        """One sample."""


AnyTally = TypeVar("AnyTally", bound=Tally)


def look_at(shard: Shard, raw: memoryview, new_audit: Callable[[], Audit], new_tally: Callable[[], AnyTally]) -> tuple[Audit, AnyTally]:
    """Show every sample of the uncompressed shard to a tally; faults go to the audit. Raises what its ``on_fault`` raises."""
    audit, tally = new_audit(), new_tally()
    seen = 0
    try:
        for columns in shard.format.columns(raw, audit):
            tally.add(columns, raw)
            seen = _keep_little(raw, seen, columns.offsets[-1] if columns.offsets else seen)
    except UnprovenError:
        audit, tally = new_audit(), new_tally()
        seen = 0
        for sample in shard.format.audit(raw, audit):
            tally.add_sample(sample)
            seen = _keep_little(raw, seen, sample.offset)
    return audit, tally


def _keep_little(raw: memoryview, seen: int, offset: int) -> int:
    """Lets a mapped shard go from time to time: what was looked at would fill the memory. Returns where it was last let go."""
    if offset - seen < _SEEN_BYTES:
        return seen
    let_go(raw)
    return offset
