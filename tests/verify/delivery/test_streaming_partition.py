"""Our replay of StreamingDataset's arithmetic delivers what the library's own does, sample by sample; stops a proof about
another reader than the one that is used.
"""

import random

import numpy as np
import pytest

from shardtools.verify.delivery._streaming import World, delivered, epoch_length, num_delivered, one_node


def by_library(streaming, num_samples, world, num_seen, loader, initial_nodes=None):
    """[samples per rank, nodes, ranks per node], in the order a rank's loader takes batches from its workers in turn."""
    nodes, ranks, canonical = world
    get_partitions = streaming.base.partition.get_partitions
    ids = get_partitions("relaxed", num_samples, canonical, nodes, ranks, *loader, num_seen, initial_nodes or nodes)
    flat = ids.transpose(3, 2, 4, 0, 1).reshape(-1, nodes, ranks)
    return flat[(flat >= 0).all(axis=(1, 2))]


def worlds(numbers, count):
    for _ in range(count):
        nodes, ranks = numbers.choice([1, 1, 2, 3, 4, 8]), numbers.choice([1, 2, 3, 4, 8])
        canonical = numbers.choice([nodes, nodes, 2 * nodes, 8 * nodes, 1, nodes // 2 if nodes % 2 == 0 else nodes])
        yield World(nodes, ranks, canonical), numbers.choice([1, 2, 3]), numbers.choice([1, 2, 3, 4, 7])


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:Attempting to partition", "ignore:Trying to partition")
def test_the_same_samples_in_the_same_order_as_the_library(streaming):
    seed = 20
    numbers = random.Random(seed)
    num_compared = 0
    for world, workers, batch in worlds(numbers, 4000):
        num_samples = numbers.randint(1, 400) if numbers.random() < 0.7 else numbers.randint(1, 20)
        global_batch = world.world_size * batch
        num_seen = numbers.choice([0, numbers.randint(0, num_samples // global_batch) * global_batch, numbers.randint(0, num_samples)])
        try:
            expected = by_library(streaming, num_samples, world, num_seen, (workers, batch))
        except ValueError:
            continue  # a few samples over many nodes: the library fails, there is nothing to compare
        got = delivered(num_samples, world, num_seen)
        assert got.shape == expected.shape and (got == expected).all(), (seed, num_samples, world, num_seen)
        assert num_delivered(num_samples, world, num_seen) == expected.size, (seed, num_samples, world, num_seen)
        num_compared += 1
    assert num_compared > 3800


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:Attempting to partition", "ignore:Trying to partition")
def test_a_resume_in_another_world_of_one_node_is_the_librarys(streaming):
    """The rest of an epoch begins where the first world stopped, whatever its size was."""
    for num_samples in (97, 240, 1001):
        for before, after in ((1, 2), (2, 1), (2, 4), (4, 2), (8, 4)):
            num_seen = 16 * (num_samples // 32)
            rest = by_library(streaming, num_samples, one_node(after), num_seen, (2, 16 // after), 1)
            assert (delivered(num_samples, one_node(after), num_seen) == rest).all()
            first = delivered(num_samples, one_node(before))[: num_seen // before]
            assert sorted(first.ravel()) == list(range(num_seen))


def test_known_worlds():
    """Measured with mosaicml-streaming 0.13."""
    assert num_delivered(1001, one_node(8)) == 1008
    assert num_delivered(1_281_167, World(8, 8, 8)) == 1_281_216
    assert num_delivered(101, World(2, 2, 2)) == 104
    assert num_delivered(96, World(2, 2, 2)) == 96
    assert num_delivered(101, World(2, 2, 2), 48) == 56
    assert epoch_length(101, World(2, 2, 2)) == 102


def test_an_epoch_is_exact_if_and_only_if_canonical_nodes_and_ranks_divide_the_samples():
    numbers = random.Random(3)
    for world, _, _ in worlds(numbers, 500):
        num_samples = numbers.randint(world.canonical_nodes + 1, 300)
        times = np.bincount(delivered(num_samples, world).ravel(), minlength=num_samples)
        is_exact = num_samples % world.canonical_nodes == 0 and num_samples % world.world_size == 0
        assert (times > 0).all() and bool((times == 1).all()) == is_exact, (num_samples, world)
