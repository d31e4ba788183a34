"""One attempt at a piece of work: what it rejects, what it reports, and the names its shards have on the way."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardtools.build.numbering import Planned
from shardtools.build.receipts import BuildNames, Receipt
from shardtools.engines import Progress, Report
from shardtools.errors import BadSampleError, ShardtoolsError
from shardtools.manifest import Ledger
from shardtools.plan import Recipe
from shardtools.sample import Reject
from shardtools.storage import ObjectWriter, Storage
from shardtools.units import Budget, plural

_REPORT_SECONDS = 0.2


@dataclass
class Rejects:
    """The sink of one attempt: keeps what is rejected, stops when that is too much."""

    budget: Budget
    found: list[Reject] = field(default_factory=list)

    def __call__(self, reject: Reject) -> None:
        self.found.append(reject)
        if not self.budget.allows_so_far(len(self.found)):
            raise over_budget(self.budget, reject)

    def by_reason(self) -> Counter[str]:
        """How many there are of each."""
        return Counter(reject.reason for reject in self.found)


def over_budget(budget: Budget, last: Reject) -> BadSampleError:
    """The error that ends a run with too many bad samples; names the last of them."""
    allowed = "" if str(budget) == "0" else f" (and more than the {budget} that --max-bad allows)"
    tolerate = "; --max-bad N sets up to N such samples aside" if str(budget) == "0" else ""
    return BadSampleError(f"bad sample{allowed}: {last.where}: {last.sentence}{tolerate}")


def refuse_over_budget(budget: Budget, receipts: Sequence[Receipt]) -> None:
    """Raises BadSampleError where all that was read has more bad samples than the budget allows."""
    ledger = sum((receipt.ledger for receipt in receipts), Ledger())
    if not budget.allows(ledger.num_rejected, ledger.num_read):
        raise over_budget(budget, next(reject for receipt in receipts for reject in receipt.rejects))


def refuse_nothing(receipts: Sequence[Receipt]) -> None:
    """Raises ShardtoolsError where no sample is left to publish; says what became of those that were read."""
    if any(receipt.shards for receipt in receipts):
        return
    ledger = sum((receipt.ledger for receipt in receipts), Ledger())
    left_out = [f"--{name} left out {count:,}" for name, count in sorted(ledger.filters.items())]
    left_out += [f"{ledger.num_rejected:,} were bad"] if ledger.num_rejected else []
    why = f" of the {plural(ledger.num_read, ledger.read_noun)} read: {', '.join(left_out)}" if left_out else ""
    raise ShardtoolsError(f"expected at least one sample to write, got none{why}; nothing was published")


@dataclass
class Meter:
    """Reports what was done a few times a second."""

    report: Report
    rejects: Rejects
    num_samples: int = 0
    num_bytes: int = 0
    num_reported_rejects: int = 0
    next_time: float = field(default_factory=lambda: time.monotonic() + _REPORT_SECONDS)

    def add(self, num_samples: int, num_bytes: int) -> None:
        self.num_samples += num_samples
        self.num_bytes += num_bytes
        if time.monotonic() >= self.next_time:
            self.flush()

    def flush(self) -> None:
        num_rejects = len(self.rejects.found)
        self.report(Progress(self.num_samples, self.num_bytes, num_rejects - self.num_reported_rejects))
        self.num_samples = self.num_bytes = 0
        self.num_reported_rejects = num_rejects
        self.next_time = time.monotonic() + _REPORT_SECONDS


@dataclass(frozen=True)
class Terms:
    """What all tasks of one build share; they run anywhere that sees the inputs and the destination."""

    recipe: Recipe
    plan_digest: str
    roots: tuple[str, ...]
    destination: str
    budget: Budget
    spans_machines: bool = True
    """What one machine left has to survive its loss of power, since others rely on it. Where one does everything, only publication
    waits for the disk: what is lost before is found out by its SHA-256 and built again, and a sync each would take longer than
    all else where partitions are small."""

    @property
    def names(self) -> BuildNames:
        return BuildNames(self.plan_digest)

    def leave(self, storage: Storage, name: str, receipt: bytes) -> None:
        """Store the sealed receipt of finished work."""
        if self.spans_machines or storage.finishes_at_once:
            storage.put(name, receipt)
            return
        temporary = f"{self.names.folder}/tmp/{os.urandom(8).hex()}"
        writer = storage.writer(temporary, durable=False)
        try:
            writer.write(receipt)
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        storage.move(temporary, name)


@dataclass(frozen=True)
class StagedNames:
    """The shards of one attempt at a partition, by their order in it."""

    terms: Terms
    storage: Storage
    partition: int
    final: Planned | None = None
    attempt: str = field(default_factory=lambda: os.urandom(8).hex())

    def writer(self, k: int) -> ObjectWriter:
        if self.final is not None:
            return self.final.writer(self.storage, self.partition, k)
        name = self._staged(k) if self.storage.finishes_at_once else self._temporary(k)
        return self.storage.writer(name, durable=self.terms.spans_machines)

    def demand_count(self, count: int) -> None:
        """Raises ShardtoolsError where a plan that fixes the final names knows another number of shards."""
        if self.final is not None:
            self.final.demand_count(self.partition, count)

    def stage(self, k: int) -> None:
        if not self.storage.finishes_at_once:
            self.storage.move(self._temporary(k), self._staged(k))

    def delete(self, k: int) -> None:
        # Under the names that all attempts give, a shard may be another run's, whose receipt names it.
        if not self.storage.finishes_at_once:
            self.storage.delete(self._temporary(k))

    def _staged(self, k: int) -> str:
        return self.terms.names.staged(self.partition, k)

    def _temporary(self, k: int) -> str:
        return self.terms.names.temporary(self.partition, self.attempt, k)
