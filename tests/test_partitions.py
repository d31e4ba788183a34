"""Stops partitions that waste shards, lose samples, or leave most workers waiting for the last one."""

import random
from itertools import islice

import pytest

from shardtools.partitions import cut_exactly, partition_bytes, tapered
from shardtools.plan import Partition, ShardLimit

MIB = 1 << 20


# Targets.


@pytest.mark.parametrize(
    ("input_mib", "ratio", "shard_mib", "low_mib", "high_mib"),
    [
        (1, 1.0, 256, 1, 1),  # little input is one partition
        (100, 1.0, 256, 14, 15),  # 16 MiB would leave a crumb: seven equal parts
        (3200, 1.0, 256, 200, 200),  # a sixteenth of the input, below one shard
        (16 * 300, 1.0, 256, 245, 256),  # a sixteenth is 1.17 shards: one whole shard
        (16 * 600, 1.0, 256, 490, 512),  # 2.3 shards: two
        (1 << 20, 1.0, 256, 1960, 2048),  # never above 8 shards
        (1 << 20, 2.0, 256, 980, 1024),  # output twice the input: half the input fills a shard
        (1 << 20, 1.0, 1, 15, 16),  # 16 MiB is more than 8 small shards
    ],
)
def test_a_partition_holds_this_much_input(input_mib, ratio, shard_mib, low_mib, high_mib):
    assert low_mib * MIB <= partition_bytes(input_mib * MIB, ratio, shard_mib * MIB) <= high_mib * MIB


def test_without_a_shard_size_a_partition_is_a_sixteenth_and_at_least_16_mib():
    assert partition_bytes(1600 * MIB, 1.0, None) == 100 * MIB
    assert partition_bytes(10 * MIB, 1.0, None) == 10 * MIB


# Cutting.


def cut(weights: list[int], costs: list[int], budget: int, limit: ShardLimit) -> list[Partition]:
    return cut_exactly([b"%d" % i for i in range(len(weights))], weights, costs, budget, limit)


def rolled(costs: list[int], budget: int) -> list[int]:
    """The bytes of each shard when samples are put in one after the other."""
    shards: list[int] = []
    for cost in costs:
        if shards and shards[-1] + cost <= budget:
            shards[-1] += cost
        else:
            shards.append(cost)
    return shards


@pytest.mark.parametrize("num_shards", [20, 25, 33, 100, 400])
@pytest.mark.parametrize("shard_mib", [1, 64, 256])
def test_shards_are_90_percent_full_from_20_on(num_shards, shard_mib):
    numbers = random.Random(num_shards)
    budget = shard_mib * MIB
    mean = budget // 60
    weights = [numbers.randint(mean // 3, mean * 5 // 3) for _ in range(num_shards * 60)]
    costs = [weight + 1024 for weight in weights]
    partitions = cut(weights, costs, budget, ShardLimit(num_bytes=budget))
    shards: list[int] = []
    begin = 0
    for partition in partitions:
        assert partition.extents == [b"%d" % i for i in range(begin, begin + len(partition.extents))]
        assert partition.num_samples == len(partition.extents) > 0
        end = begin + len(partition.extents)
        assert partition.input_bytes == sum(weights[begin:end])
        shards += rolled(costs[begin:end], budget)
        begin = end
    assert begin == len(weights)
    assert len(shards) >= 20 and max(shards) <= budget
    assert sum(shards) / (len(shards) * budget) >= 0.9


@pytest.mark.parametrize("num_shards", [17, 20, 25, 33, 100])
def test_partitions_that_hold_whole_shards_end_where_a_shard_is_full(num_shards):
    """Otherwise every partition wastes the end of a shard."""
    budget = 64 * MIB
    weights = [MIB // 10] * (640 * num_shards)
    partitions = cut(weights, weights, budget, ShardLimit(num_bytes=budget))
    assert {partition.num_samples % 640 for partition in partitions[:-1]} == {0}


def test_the_shards_of_every_partition_are_counted_exactly():
    """Where shards get their final names before all are built, one more or less would shift all after it."""
    numbers = random.Random(9)
    for limit in (ShardLimit(num_bytes=MIB), ShardLimit(num_samples=7), ShardLimit(num_bytes=64 * MIB)):
        budget = limit.num_bytes or 1 << 60
        for kinds in ([0], [0, 0, 0, 3 * MIB], [100, 400_000], [30 * MIB, 70 * MIB]):
            # Empty files in a row weigh nothing, and fill shards all the same.
            weights = [0] * 90_000 * (len(kinds) == 2) + [numbers.choice(kinds) for _ in range(1000)]
            costs = [weight + 1024 for weight in weights]
            begin = 0
            for partition in cut(weights, costs, budget, limit):
                end = begin + len(partition.extents)
                by_bytes, by_count = len(rolled(costs[begin:end], budget)), -(-(end - begin) // (limit.num_samples or end))
                assert partition.num_shards == (by_count if limit.num_samples else by_bytes)
                begin = end


@pytest.mark.parametrize("num_shards", [20, 100])
def test_enough_partitions_for_all_cores(num_shards):
    budget = 64 * MIB
    weights = [MIB] * (64 * num_shards)
    assert len(cut(weights, weights, budget, ShardLimit(num_bytes=budget))) >= min(num_shards, 16) * 0.75


def test_partitions_are_indexed_in_order():
    partitions = cut([MIB] * 1000, [MIB] * 1000, 32 * MIB, ShardLimit(num_bytes=32 * MIB))
    assert [partition.index for partition in partitions] == list(range(len(partitions)))


def test_little_input_is_one_partition():
    (partition,) = cut([10] * 50, [1024] * 50, 10 * MIB, ShardLimit(num_bytes=10 * MIB))
    assert len(partition.extents) == 50


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_samples_as_large_as_a_partition_are_all_planned(count):
    partitions = cut([20 * MIB] * count, [20 * MIB] * count, 256 * MIB, ShardLimit(num_bytes=256 * MIB))
    assert [e for p in partitions for e in p.extents] == [b"%d" % i for i in range(count)]


def test_no_input_is_no_partition():
    assert cut([], [], MIB, ShardLimit(num_bytes=MIB)) == []


def test_empty_files_are_cut_too():
    (partition,) = cut([0] * 50, [512] * 50, MIB, ShardLimit(num_bytes=MIB))
    assert partition.input_bytes == 0 and partition.num_samples == 50


@pytest.mark.parametrize("limit", [1, 7, 64, 1000])
def test_a_sample_limit_ends_every_partition_at_a_whole_shard(limit):
    weights = [MIB // 2] * 1000
    partitions = cut(weights, weights, 1 << 62, ShardLimit(num_samples=limit))
    counts = [partition.num_samples for partition in partitions]
    assert sum(counts) == 1000
    assert all(count % limit == 0 for count in counts[:-1])
    assert len(counts) > 1 or limit == 1000


def test_a_sample_above_the_limit_is_in_exactly_one_partition():
    weights = [MIB] * 40 + [100 * MIB] + [MIB] * 40
    partitions = cut(weights, weights, 16 * MIB, ShardLimit(num_bytes=16 * MIB))
    assert [e for p in partitions for e in p.extents] == [b"%d" % i for i in range(81)]


# Smaller ones at the end.


def test_partitions_taper_over_the_last_four():
    sizes = list(islice(tapered(8000, 1000), 17))
    assert sizes == [1000] * 5 + [750, 562, 422, 316, 237, 178, 133, 125, 125, 125, 125, 125]


def test_what_makes_one_partition_stays_one():
    assert next(tapered(1000, 1000)) == 1000


@pytest.mark.parametrize("target", [1, 2, 7, 1000])
def test_every_partition_holds_something_and_none_more_than_its_target(target):
    assert all(1 <= size <= target for size in islice(tapered(5000, target), 6000))
