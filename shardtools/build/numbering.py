"""The final names of shards, and what a run may do that gives them while it still builds."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import NamedTuple

from shardtools.build.receipts import FINAL_NAMES_NAME
from shardtools.errors import ShardtoolsError, StorageError
from shardtools.formats import ShardFormat
from shardtools.plan import Plan
from shardtools.storage import ObjectWriter, Storage

TAKEN_OVER = (
    "expected {} to keep this run's plan, got it removed by another run that overwrites or has finished there; "
    "let that run finish, then look at what is there before you run this command again"
)


class OwnPart(NamedTuple):
    """What a shard's final name has of the shard itself."""

    split: str = ""
    suffix: str = ""


def final_names(shard_format: ShardFormat, shards: Sequence[Sequence[OwnPart]]) -> list[list[str]]:
    """The name of every shard of every partition: contiguous numbers in each split, in dataset order, of one width in each."""
    counts = Counter(shard.split for partition in shards for shard in partition)
    numbers: defaultdict[str, count[int]] = defaultdict(count)
    return [
        [f"{shard_format.shard_name(next(numbers[split]), _num_digits(counts[split]), split)}{suffix}" for split, suffix in partition]
        for partition in shards
    ]


def _num_digits(num_shards: int) -> int:
    return len(str(max(num_shards - 1, 0)))


@dataclass(frozen=True)
class Numbering:
    """Final names that are known beforehand, of a dataset without splits: those that ``final_names`` gives."""

    format: ShardFormat
    first: tuple[int, ...]
    """The number of the first shard of each partition, and behind them how many there are."""

    @classmethod
    def of(cls, shard_format: ShardFormat, counts: Iterable[int]) -> "Numbering":
        """For so many shards in each partition."""
        return cls(shard_format, tuple(accumulate(counts, initial=0)))

    def count(self, partition: int) -> int:
        return self.first[partition + 1] - self.first[partition]

    def name(self, partition: int, k: int) -> str:
        """Of shard ``k`` of a partition."""
        return self.format.shard_name(self.first[partition] + k, _num_digits(self.first[-1]))


@dataclass(frozen=True)
class Planned:
    """Names given by the plan alone. A run of another plan takes the right to give them away by removing one object."""

    numbering: Numbering
    plan_digest: str

    @classmethod
    def of(cls, plan: Plan) -> "Planned":
        """Of a plan that fixes how many shards each partition has."""
        return cls(Numbering.of(plan.recipe.format, [partition.num_shards for partition in plan.partitions]), plan.digest)

    def allow(self, storage: Storage) -> None:
        """From now on the workers of this plan may write under final names."""
        storage.put(FINAL_NAMES_NAME, self.plan_digest.encode())

    def demand(self, storage: Storage) -> None:
        """Raises StorageError where they may not any more."""
        if storage.get(FINAL_NAMES_NAME) != self.plan_digest.encode():
            raise StorageError(TAKEN_OVER.format(storage.uri))

    def writer(self, storage: Storage, partition: int, k: int) -> "ObjectWriter":
        """Raises ShardtoolsError for a shard that the plan has no number for; it finishes, or fails, as ``demand`` says."""
        self.demand_count(partition, k + 1, at_most=True)
        return _PlannedWriter(storage.writer(self.numbering.name(partition, k)), self, storage)

    def demand_count(self, partition: int, count: int, at_most: bool = False) -> None:
        """Raises ShardtoolsError where a partition does not have as many shards as planned."""
        planned = self.numbering.count(partition)
        if count > planned or (count < planned and not at_most):
            raise ShardtoolsError(
                f"expected {planned:,} shards of partition {partition} as planned, got {count:,}; "
                "please report this, and run with --max-bad 0% until then, which does not rely on it"
            )


class _PlannedWriter:
    """A shard under its final name: what is finished after another run took the destination over must not appear."""

    def __init__(self, writer: ObjectWriter, planned: Planned, storage: Storage) -> None:
        self._writer, self._planned, self._storage = writer, planned, storage
        self.spool_folder = writer.spool_folder
        self.version = ""

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def finish(self) -> None:
        self._planned.demand(self._storage)
        self._writer.finish()
        self.version = self._writer.version

    def abort(self) -> None:
        self._writer.abort()
