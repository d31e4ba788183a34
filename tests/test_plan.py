"""Stops partitions that waste shards, lose samples or depend on anything but input and recipe; and shuffles that favour a place."""

import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from shardtools.extents import extent, identity
from shardtools.formats.wds import Wds
from shardtools.plan import Partition, Plan, Recipe, ShardLimit, cut_exactly, partition_bytes, permutation
from shardtools.sample import Field
from shardtools.sources.files import Files

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


# Shuffling.


def test_permutations_are_these_for_ever():
    """Literal values: another numpy, or another machine, must not reorder a dataset that is half built."""
    assert permutation(0, 10) == [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]
    assert permutation(42, 10) == [7, 1, 6, 4, 3, 5, 9, 0, 2, 8]
    assert permutation(2**64 + 5, 5) == [4, 1, 0, 2, 3]


# Philox4x64-10 with key (seed, 0) and counter 1, 2, ...: the raw words, computed from the published algorithm.
def philox_words(seed: int, count: int) -> list[int]:
    mask = 2**64 - 1
    words: list[int] = []
    counter = 1
    while len(words) < count:
        block = [counter & mask, counter >> 64 & mask, 0, 0]
        key = [seed & mask, seed >> 64 & mask]
        for _ in range(10):
            low = 0xD2E7470EE14C6C93 * block[0]
            high = 0xCA5A826395121157 * block[2]
            block = [high >> 64 ^ block[1] ^ key[0], high & mask, low >> 64 ^ block[3] ^ key[1], low & mask]
            key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
        words += block
        counter += 1
    return words[:count]


def test_a_permutation_sorts_by_the_words_of_philox():
    for seed in (0, 1, 42, 2**64 + 5):
        words = philox_words(seed, 101)
        assert permutation(seed, 101) == sorted(range(101), key=words.__getitem__)


def test_every_order_is_as_likely_as_any_other():
    """Chi-square over all 24 orders of four samples; the bound is passed by chance once in 10,000 for random seeds, and these are fixed."""
    counts = Counter(tuple(permutation(seed, 4)) for seed in range(12000))
    assert len(counts) == 24
    chi_square = sum((count - 500) ** 2 / 500 for count in counts.values())
    assert chi_square < 58.6  # 23 degrees of freedom


def test_a_sample_lands_everywhere_alike():
    places = np.array([permutation(seed, 50).index(0) for seed in range(5000)])
    counts = np.bincount(places, minlength=50)
    chi_square = ((counts - 100) ** 2 / 100).sum()
    assert chi_square < 95  # 49 degrees of freedom, once in 10,000


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_permutation_holds_every_index_once(count):
    order = permutation(3, count)
    assert sorted(order) == list(range(count))
    assert all(type(i) is int for i in order)


# The plan and its digest.


def make(extents: list[list[bytes]], **changes) -> Plan:
    recipe = Recipe(
        changes.get("source", Files(group="file")),
        Wds(),
        (Field("txt", "str"),),
        ShardLimit(num_bytes=changes.get("shard_bytes", 10240)),
        changes.get("seed"),
    )
    return Plan.make(recipe, [Partition(i, some, 1, len(some), 1) for i, some in enumerate(extents)])


A, B, C = (extent([b"%c" % letter, b"0", b"", b"txt", b"5", b"%c.txt" % letter], b"1700000000") for letter in b"abc")


def test_the_version_is_no_part_of_the_plan_but_of_what_is_rebuilt():
    newer = extent([b"a", b"0", b"", b"txt", b"5", b"a.txt"], b"1800000000")
    assert identity(newer) == identity(A)
    one, two = make([[A, B]]), make([[newer, B]])
    assert one.digest == two.digest
    assert one.serialize() == two.serialize()
    assert one.partitions[0].inputs_digest() != two.partitions[0].inputs_digest()


@pytest.mark.parametrize(
    "other",
    [
        make([[A, B]], shard_bytes=20480),
        make([[A, B]], seed=1),
        make([[A, B]], source=Files(group="first-dot")),
        make([[A], [B]]),
        make([[B, A]]),
        make([[A, B, C]]),
        make([[A]]),
    ],
)
def test_anything_else_is_another_plan(other):
    assert other.digest != make([[A, B]]).digest


def test_a_stored_plan_knows_its_digest():
    plan = make([[A], [B, C]])
    assert Plan.digest_of(plan.serialize()) == plan.digest


def test_differences_are_named():
    stored = make([[A, B]]).serialize()
    changed = extent([b"a", b"0", b"", b"txt", b"6", b"a.txt"], b"1")
    assert make([[changed, C]], shard_bytes=20480, seed=3).differences(stored) == [
        "shard_bytes was 10240, is 20480",
        "shuffle_seed was None, is 3",
        "1 inputs added: c",
        "1 inputs gone: b",
        "1 inputs changed: a",
    ]
    assert make([[A, B]], source=Files(group="first-dot")).differences(stored) == ["source.group was 'file', is 'first-dot'"]
    assert make([[B, A]]).differences(stored) == ["the same extents in another order"]


def test_many_differences_show_three_names():
    stored = make([[A]]).serialize()
    many = [extent([b"n%d" % i], b"") for i in range(9)]
    assert make([[A, *many]]).differences(stored) == ["9 inputs added: n0, n1, n2, ..."]


def test_odd_names_are_shown_on_one_line():
    stored = make([[A]]).serialize()
    odd = [extent([name], b"") for name in (b"new\nline", b"bad\xff", b"back\\slash")]
    (text,) = make([[A, *odd]]).differences(stored)
    assert "\n" not in text and "3 inputs added" in text and "bad\\xff" in text


def test_the_digest_does_not_depend_on_the_hash_seed():
    code = "from test_plan import make, A, B; print(make([[A, B]]).digest)"
    found = set()
    for hash_seed in ("0", "1", "77"):
        environment = {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": ":".join(path for path in [*sys.path, __file__.rpartition("/")[0]] if path),
        }
        found.add(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True).stdout)
    assert found == {make([[A, B]]).digest + "\n"}
