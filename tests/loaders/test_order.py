"""Stops an order that changes between versions, machines or ways of asking, and a shuffle that leaves neighbours together."""

import tracemalloc
from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from worlds import Pass, dataset_of, epoch_places  # noqa: E402

from shardtools.loaders._order import Order  # noqa: E402
from shardtools.loaders._world import World  # noqa: E402

pytestmark = pytest.mark.train

NUM_SHARDS, SHARD_SAMPLES = 64, 128
NUM_SAMPLES = NUM_SHARDS * SHARD_SAMPLES
WINDOW = 256


def order_of(counts: list[int], block_shards: int | None, seed: int, epoch: int) -> Order:
    return Order(np.array(counts, np.int64), block_shards, seed, epoch)


def places(order: Order) -> list[tuple[int, int]]:
    shards, rows = order.locate(np.arange(len(order)))
    return list(zip(shards.tolist(), rows.tolist(), strict=True))


def test_the_order_is_frozen() -> None:
    """States that were saved by another version hold positions of this order."""
    found = places(order_of([3, 2, 0, 4], 2, 5, 1))
    assert found == [(0, 1), (1, 1), (0, 2), (1, 0), (0, 0), (3, 1), (3, 3), (3, 0), (3, 2)]
    assert found == epoch_places([3, 2, 0, 4], 5, 1, 2)


def test_without_a_shuffle_it_is_that_of_the_dataset() -> None:
    assert places(order_of([2, 0, 1], None, 5, 1)) == [(0, 0), (0, 1), (2, 0)]


def test_positions_may_be_asked_for_in_any_order() -> None:
    counts = [7, 0, 3, 11, 1, 1, 30, 2]
    order, expected = order_of(counts, 3, 9, 2), np.array(epoch_places(counts, 9, 2, 3))
    for positions in np.array_split(np.random.Generator(np.random.Philox(1)).permutation(len(order)), 9):
        assert (np.stack(order.locate(positions), axis=1) == expected[positions]).all()


def test_a_block_costs_sixteen_bytes_a_sample() -> None:
    order = order_of([250_000] * 4, 2, 1, 0)
    tracemalloc.start()
    try:
        order.locate(np.arange(1))
        tracemalloc.reset_peak()
        order.locate(np.arange(1) + 500_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16.5 * 500_000


def test_another_epoch_and_another_seed_are_other_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = set()
    for seed in (0, 1, 2**63):
        for epoch in (0, 1, 2**40):
            dataset = dataset_of([9, 9, 9], World(0, 1, 1, "short"), seed)
            dataset.set_epoch(epoch)
            orders.add(tuple(key for (key,) in Pass(monkeypatch, dataset, 0).batches))
    assert len(orders) == 9


def test_all_orders_of_a_block_and_of_shards_are_as_likely() -> None:
    """24 orders each 2,400 times over: chi-square with 23 degrees of freedom is above 49.7 once in 1,000, and below 8 as rarely."""
    blocks = Counter(tuple(places(order_of([2, 2], 2, 1, epoch))) for epoch in range(2400))
    shards = Counter(tuple(places(order_of([1, 1, 1, 1], 1, 2, epoch))) for epoch in range(2400))
    for found in (blocks, shards):
        assert len(found) == 24
        assert 8 < sum((count - 100) ** 2 / 100 for count in found.values()) < 49.7


def epochs(block_shards: int, num_epochs: int = 40) -> Iterator[npt.NDArray[np.int64]]:
    """Where in the dataset the sample at each position lies: int64 [samples]."""
    for epoch in range(num_epochs):
        shards, rows = order_of([SHARD_SAMPLES] * NUM_SHARDS, block_shards, 3, epoch).locate(np.arange(NUM_SAMPLES))
        yield shards * SHARD_SAMPLES + rows


def rank_correlation(order: npt.NDArray[np.int64]) -> float:
    return float(np.corrcoef(order, np.arange(len(order)))[0, 1])


def shards_a_window(order: npt.NDArray[np.int64]) -> float:
    return float(np.mean([len(set(window.tolist())) for window in (order // SHARD_SAMPLES).reshape(-1, WINDOW)]))


def neighbours(order: npt.NDArray[np.int64]) -> float:
    """Of all samples, those followed by the one that follows them in the dataset."""
    return float(np.mean(np.diff(order) == 1))


def test_blocks_of_all_shards_are_true_permutations() -> None:
    """Of 8,192 samples a true one has a rank correlation of 0 ± 0.011; 64 × (1 - (63 / 64) ** 256) = 62.9 shards a window."""
    found = list(epochs(NUM_SHARDS))
    assert max(abs(rank_correlation(order)) for order in found) < 4 * 0.011
    assert 62.7 < np.mean([shards_a_window(order) for order in found]) < 63.1
    assert np.mean([neighbours(order) for order in found]) < 0.0003  # 1 / 8,192, 2.5 times over


def test_blocks_of_eight_shards_mix_eight_shards() -> None:
    """The default. Whole blocks stay together, and shards are permuted: of 64 of them, the rank correlation is 0 ± 0.125, 0.1 on average.

    A window of 256 has 8 × (1 - (7 / 8) ** 256) = 8 shards; without a shuffle it has 2.
    """
    found = list(epochs(8))
    correlations = [rank_correlation(order) for order in found]
    assert abs(np.mean(correlations)) < 3 * 0.125 / 40**0.5
    assert np.mean(np.abs(correlations)) < 0.14
    assert {shards_a_window(order) for order in found} == {8.0}
    assert np.mean([neighbours(order) for order in found]) < 0.0015  # 1 / 1,024, 1.5 times over
    # Within a block nothing is left of the order: 1,024 samples of it, 0 ± 0.031.
    within = [rank_correlation(np.argsort(np.argsort(block))) for order in found for block in order.reshape(-1, 8 * SHARD_SAMPLES)]
    assert abs(np.mean(within)) < 3 * 0.031 / len(within) ** 0.5
    assert max(map(abs, within)) < 5 * 0.031


def test_no_shuffle_is_seen_by_the_figures() -> None:
    order = np.arange(NUM_SAMPLES)
    assert (rank_correlation(order), shards_a_window(order), neighbours(order)) == (pytest.approx(1.0), 2.0, 1.0)
