"""How much of the input makes one partition, and where it is cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from shardtools.plan import Partition, ShardLimit
from shardtools.units import format_bytes

MIN_PARTITION_BYTES = 16 << 20
_PARTITIONS_AT_LEAST = 16
_SHARDS_PER_PARTITION = 8
# Partitions aim a little below whole shards, so that an estimate that is a touch low does not open one more shard.
_ESTIMATE_MARGIN = 0.98
_NEARLY_A_SHARD = 0.9
_TAPER = 4
_SMALLEST = 8


def partition_bytes(input_bytes: int, stored_ratio: float, shard_bytes: int | None, beside_ratio: float = 0.0) -> int:
    """How much input one partition holds, for ``stored_ratio`` output bytes per input byte.

    ``max(16 MiB, min(input / 16, the input of 8 shards))``, brought down to whole shards where it is larger than one, and
    to equal parts of the input where it is smaller, so that the last shard is no crumb. ``beside_ratio``: so many bytes are read
    beside each input byte; in these rules, not in the result, they count as input.
    """
    if beside_ratio:
        whole = 1 + beside_ratio
        return max(1, int(partition_bytes(int(input_bytes * whole), stored_ratio / whole, shard_bytes) / whole))
    share = input_bytes / _PARTITIONS_AT_LEAST
    if shard_bytes is None:
        return _equal_parts(input_bytes, max(MIN_PARTITION_BYTES, share))
    shard_input_bytes = shard_bytes / stored_ratio
    target = max(MIN_PARTITION_BYTES, min(share, _SHARDS_PER_PARTITION * shard_input_bytes))
    whole_shards = int(target / shard_input_bytes)
    if whole_shards == 0:
        return _equal_parts(input_bytes, target)
    return max(1, int(whole_shards * shard_input_bytes * _ESTIMATE_MARGIN))


def tapered(input_bytes: int, target_bytes: int) -> Iterator[int]:
    """Sizes of partitions, without end: ``target_bytes`` each, but ever smaller ones over the last four, down to an eighth of it.

    Where a partition takes minutes, a worker that has none left waits as long for the others; small ones at the end are
    shared out evenly, and only a few of them are shards well below the limit. What makes one partition stays one.
    """
    left = input_bytes
    smallest = target_bytes if input_bytes <= target_bytes else max(1, target_bytes // _SMALLEST)
    while True:
        size = max(min(target_bytes, left // _TAPER), smallest)
        yield size
        left -= size


def _equal_parts(input_bytes: int, most_bytes: float) -> int:
    return max(1, ceil(input_bytes / max(1, ceil(input_bytes / most_bytes))))


@dataclass(frozen=True)
class _Shards:
    """How samples of known cost fill shards."""

    budget_bytes: int
    num_samples: int | None

    def boundaries(self, costs: Sequence[int]) -> Iterator[bool]:
        """For each sample, whether a new shard begins with it."""
        used = count = 0
        for cost in costs:
            full = used + cost > self.budget_bytes or count == self.num_samples
            yield full and count > 0
            if full:
                used = count = 0
            used += cost
            count += 1

    def count(self, costs: Sequence[int]) -> int:
        """How many shards the samples fill that begin with a new one."""
        if self.num_samples is None and sum(costs) <= self.budget_bytes:
            return min(len(costs), 1)
        return min(len(costs), 1) + sum(self.boundaries(costs))


def cut_exactly(
    extents: list[bytes], weights: Sequence[int], costs: Sequence[int], budget_bytes: int, limit: ShardLimit
) -> list[Partition]:
    """Partitions of single-sample extents whose stored size is known: they end where a shard is full.

    ``weights`` are input bytes and ``costs`` stored bytes per extent; ``budget_bytes`` is what one shard can hold.
    Where a partition is smaller than a shard it ends anywhere, since all cores matter more than full shards then.
    """
    total_in, total_out = sum(weights), sum(costs)
    shard_bytes = None if limit.num_bytes is None else budget_bytes
    target = partition_bytes(total_in, total_out / total_in if total_in else 1.0, shard_bytes)
    whole_shards = limit.num_bytes is None or target * total_out >= budget_bytes * total_in * _NEARLY_A_SHARD
    partitions: list[Partition] = []
    shards = _Shards(budget_bytes, limit.num_samples)
    begin = weight = before = num_shards = 0
    for i, new_shard in enumerate(shards.boundaries(costs)):
        # Parts of shards are cut along the whole input, so that no rounding adds up to a crumb at the end.
        full = new_shard and weight >= target if whole_shards else before + weight + weights[i] > target * (len(partitions) + 1)
        if i > begin and full:
            num_shards = num_shards if whole_shards else shards.count(costs[begin:i])
            partitions.append(Partition(len(partitions), extents[begin:i], weight, i - begin, num_shards))
            begin, before, weight, num_shards = i, before + weight, 0, 0
        weight += weights[i]
        num_shards += i == begin or new_shard
    if begin < len(extents):
        num_shards = num_shards if whole_shards else shards.count(costs[begin:])
        partitions.append(Partition(len(partitions), extents[begin:], weight, len(extents) - begin, num_shards))
    return partitions


def parts_note(partitions: Sequence[Partition], limit: ShardLimit, expected_bytes: int) -> list[str]:
    """A note where shards stay well below their limit, since the input is cut into parts that all cores can work on."""
    if limit.num_bytes is None or len(partitions) < 2 or expected_bytes / len(partitions) >= limit.num_bytes * _NEARLY_A_SHARD:
        return []
    return [
        f"{len(partitions)} shards of about {format_bytes(expected_bytes / len(partitions))}, below the limit of "
        f"{format_bytes(limit.num_bytes)}: each is one part of the input, for all cores to work on; --shard-samples N makes fewer"
    ]
