"""The strict look at one shard: quick where that can say that the shard is sound, else slow and exact."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from shardtools.datasets._dataset import Shard
from shardtools.formats import Audit, Columns, StoredSample, UnprovenError


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
    try:
        for columns in shard.format.columns(raw, audit):
            tally.add(columns, raw)
    except UnprovenError:
        audit, tally = new_audit(), new_tally()
        for sample in shard.format.audit(raw, audit):
            tally.add_sample(sample)
    return audit, tally
