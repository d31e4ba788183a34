"""Blocks run in orders that favour no side, and as many as the rule says: stops a comparison of morning with afternoon."""

import math
from collections import Counter
from itertools import permutations

import pytest

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.statistics import Comparison, compare


def test_the_order_is_a_function_of_seed_and_block() -> None:
    """Literal, so that a version that draws otherwise is seen."""
    assert [BlockPlan(seed=0).order(block, 2) for block in range(6)] == [(0, 1), (1, 0), (1, 0), (0, 1), (1, 0), (0, 1)]
    assert [BlockPlan(seed=0).order(block, 3) for block in (5, 0, 3)] == [(0, 1, 2), (0, 2, 1), (0, 1, 2)]
    assert [BlockPlan(seed).order(0, 2) for seed in range(8)] != [(0, 1)] * 8


def test_every_block_is_complete_and_every_order_occurs() -> None:
    seen = Counter(BlockPlan(seed).order(0, 3) for seed in range(600))
    assert set(seen) == set(permutations(range(3)))
    assert min(seen.values()) > 60


def test_over_two_blocks_each_side_runs_as_often_before_as_after_each_other() -> None:
    for seed in range(50):
        plan = BlockPlan(seed)
        for block in range(0, 12, 2):
            first, second = plan.order(block, 4), plan.order(block + 1, 4)
            assert second == first[::-1]


def compared(half_width: float) -> Comparison:
    """Of two blocks whose t-interval is that wide: t(0.975, 1) = 12.706."""
    off = half_width / 12.706
    found = compare([(1.0, math.exp(-off)), (1.0, math.exp(off))])
    assert found.half_width == pytest.approx(half_width)
    return found


def test_six_blocks_run_always_and_up_to_twelve_while_the_interval_is_wide() -> None:
    plan = BlockPlan(seed=0)
    wide, narrow = compared(0.051), compared(0.049)
    assert [num_run for num_run in range(20) if plan.wants_more(num_run, [narrow])] == list(range(6))
    assert [num_run for num_run in range(20) if plan.wants_more(num_run, [narrow, wide])] == list(range(12))
    assert [num_run for num_run in range(20) if plan.wants_more(num_run, [])] == list(range(6))
    rule = "6 to 12 paired blocks, extended while an interval is wider than +-5 % and it takes no more than 90 s, order randomised"
    assert plan.rule() == rule


def test_blocks_are_added_only_where_there_is_time() -> None:
    """Six blocks in 72 s are 12 s a block: the seventh would end at 84 s, the eighth at 96 s."""
    plan, wide = BlockPlan(seed=0), compared(0.5)
    assert [num_run for num_run in range(20) if plan.wants_more(num_run, [wide], seconds=12.0 * num_run)] == list(range(7))
    assert [num_run for num_run in range(20) if plan.wants_more(num_run, [wide], seconds=60.0 * num_run)] == list(range(6))


def test_a_fixed_number_of_blocks_is_not_extended() -> None:
    plan = BlockPlan.fixed(3, seed=1)
    assert [num_run for num_run in range(20) if plan.wants_more(num_run, [compared(0.5)])] == [0, 1, 2]
    assert plan.rule() == "3 paired blocks, number fixed, order randomised"


def test_one_side_alone_is_not_said_to_be_paired_or_extended() -> None:
    assert BlockPlan(seed=0).rule(num_sides=1) == "6 trials, number fixed"
    assert BlockPlan.fixed(1, seed=0).rule(num_sides=1) == "1 trial, number fixed"


@pytest.mark.parametrize("limits", [(0, 6), (7, 6), (6, 21)])
def test_the_number_of_blocks_is_bounded(limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"expected 1 to 20 blocks, got {limits[0]} to {limits[1]}"):
        BlockPlan(0, *limits)
