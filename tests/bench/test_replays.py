"""The decision rule replayed: stops a rule that finds differences between a side and itself, or misses one that is there.

Two kinds of trials. Simulated ones have noise as hosts have it, worse than most: the machine's speed wanders and drifts, the second trial
of a block meets another machine than the first, and some trials are slowed to a half by something else. Recorded ones are real trials of
a side against itself (`recorded/record.py`), drawn again block by block, sides swapped at random, with a known factor put on one side.
Seeds are fixed and printed by pytest as the names of the cases.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.statistics import Comparison, compare

NUM_REPLAYS = 120
RECORDED = Path(__file__).parent / "recorded"
RunBlock = Callable[[int], tuple[float, float]]
"""Throughputs of both sides in a block."""


@dataclass(frozen=True)
class Host:
    """Noise, as logarithms of speed."""

    within: float
    """Standard deviation between trials."""
    drift: float = 0.0
    """From a trial to the next."""
    order: float = 0.0
    """On the second trial of a block."""
    outliers: float = 0.0
    """Share of trials that lose 10 to 60 % to something else."""


HOSTS = {
    "quiet": Host(0.01),
    "usual": Host(0.03),
    "restless": Host(0.05),
    "warming up": Host(0.03, drift=-0.01),
    "the second trial is faster": Host(0.02, order=0.05),
    "outliers": Host(0.03, outliers=0.05),
    "everything": Host(0.03, drift=0.005, order=-0.03, outliers=0.05),
}


def simulated(host: Host, plan: BlockPlan, true_ratio: float) -> RunBlock:
    random = np.random.Generator(np.random.Philox(plan.seed))
    wander = 0.0

    def run_block(block: int) -> tuple[float, float]:
        nonlocal wander
        wander = 0.7 * wander + random.normal(0, host.within)
        rates = [0.0, 0.0]
        for place, side in enumerate(plan.order(block, 2)):
            speed = wander + random.normal(0, host.within) + host.drift * (2 * block + place) + host.order * place
            if random.random() < host.outliers:
                speed += math.log(1 - random.uniform(0.1, 0.6))
            rates[side] = 1000 * math.exp(speed) * (true_ratio if side else 1)
        return rates[0], rates[1]

    return run_block


def recorded(blocks: list[list[float]], plan: BlockPlan, true_ratio: float) -> RunBlock:
    random = np.random.Generator(np.random.Philox(plan.seed))

    def run_block(_: int) -> tuple[float, float]:
        first, second = blocks[random.integers(len(blocks))]
        if random.random() < 0.5:
            first, second = second, first
        return first, second * true_ratio

    return run_block


def replay(plan: BlockPlan, run_block: RunBlock) -> Comparison:
    """As ``bench`` does it: blocks until the plan has enough."""
    blocks: list[tuple[float, float]] = []
    compared: list[Comparison] = []
    while plan.wants_more(len(blocks), compared):
        blocks.append(run_block(len(blocks)))
        compared = [compare(blocks)]
    return compared[0]


@dataclass
class Tally:
    """Of replays of one case."""

    unclear: float
    right_way: float
    wrong_way: float
    covered: float


def tally(run: Callable[[BlockPlan, float], RunBlock], true_ratio: float, fixed: int | None = None) -> Tally:
    plans = [BlockPlan(seed) if fixed is None else BlockPlan.fixed(fixed, seed) for seed in range(NUM_REPLAYS)]
    found = [replay(plan, run(plan, true_ratio)) for plan in plans]
    up = [one.is_clear and one.ratio > 1 for one in found]
    down = [one.is_clear and one.ratio < 1 for one in found]
    inside = [one.ci is not None and one.ci[0] <= true_ratio <= one.ci[1] for one in found]
    right, wrong = (up, down) if true_ratio > 1 else (down, up)
    return Tally(float(np.mean([not one.is_clear for one in found])), float(np.mean(right)), float(np.mean(wrong)), float(np.mean(inside)))


@pytest.mark.parametrize("name", HOSTS)
def test_simulated_trials_of_a_side_against_itself_show_no_clear_difference(name: str) -> None:
    got = tally(lambda plan, ratio: simulated(HOSTS[name], plan, ratio), 1.0)
    assert got.unclear >= 0.95
    assert got.covered >= 0.90


@pytest.mark.parametrize("true_ratio", [1 / 1.3, 1.3])
@pytest.mark.parametrize("name", HOSTS)
def test_a_planted_slow_down_of_1_3_is_found_in_simulated_trials(name: str, true_ratio: float) -> None:
    got = tally(lambda plan, ratio: simulated(HOSTS[name], plan, ratio), true_ratio)
    assert got.right_way >= 0.95
    assert got.wrong_way == 0
    assert got.covered >= 0.90


def test_six_blocks_alone_are_not_enough_where_trials_are_outliers() -> None:
    """Why the number of blocks is not fixed: one outlier in six makes the interval so wide that it tells nothing, though nothing false."""
    got = tally(lambda plan, ratio: simulated(HOSTS["outliers"], plan, ratio), 1.3, fixed=6)
    assert got.right_way < 0.9
    assert got.wrong_way == 0
    quiet = tally(lambda plan, ratio: simulated(HOSTS["usual"], plan, ratio), 1.3, fixed=6)
    assert quiet.right_way >= 0.99


def _read() -> dict[str, list[list[float]]]:
    found = {}
    for file in sorted(RECORDED.glob("*.json")):
        for name, blocks in json.loads(file.read_text("utf-8"))["blocks"].items():
            found[f"{file.stem} {name}"] = blocks
    return found


SETS = _read()
SAME = [name for name in SETS if name.endswith("_aa")]
"""A side against itself."""
BUSY = [name for name in SAME if name.startswith(("busy", "busier"))]
"""Recorded while other programs took both processors by turns: sides of a block differ by up to a factor of two, and no rule finds 1.3
in twelve of them every time."""


@pytest.mark.parametrize("name", SAME)
def test_recorded_trials_of_a_side_against_itself_show_no_clear_difference(name: str) -> None:
    got = tally(lambda plan, ratio: recorded(SETS[name], plan, ratio), 1.0)
    assert got.unclear >= 0.95
    assert got.covered >= 0.90


@pytest.mark.parametrize("true_ratio", [1 / 1.3, 1.3])
@pytest.mark.parametrize("name", [name for name in SAME if name not in BUSY])
def test_a_planted_slow_down_of_1_3_is_found_in_recorded_trials(name: str, true_ratio: float) -> None:
    got = tally(lambda plan, ratio: recorded(SETS[name], plan, ratio), true_ratio)
    assert got.right_way >= 0.95
    assert got.wrong_way == 0
    assert got.covered >= 0.90


@pytest.mark.parametrize("name", BUSY)
def test_on_a_host_too_busy_to_tell_nothing_false_is_told(name: str) -> None:
    got = tally(lambda plan, ratio: recorded(SETS[name], plan, ratio), 1 / 1.3)
    assert got.wrong_way == 0
    assert got.covered >= 0.90


@pytest.mark.parametrize(("name", "is_found"), [("quiet", True), ("shared", True), ("busy", True), ("busier", False)])
def test_the_slow_down_that_was_really_planted_is_told_as_far_as_the_blocks_that_ran_carry_it(name: str, is_found: bool) -> None:
    """The second side burnt 0.3 of the time of each sample itself; what a batch costs beside keeps the true ratio a little nearer to 1."""
    blocks = [(first, second) for first, second in SETS[f"{name} decode_burn_0.3"]]
    found = replay(BlockPlan(0), lambda block: blocks[block])
    assert (found.is_clear, found.ratio < 1) == (is_found, True)
    assert found.ci and found.ci[0] < 1 / 1.25 and found.ci[1] > 1 / 1.3


@pytest.mark.parametrize("name", SAME)
def test_the_blocks_of_a_side_against_itself_as_they_ran_show_no_clear_difference(name: str) -> None:
    blocks = [(first, second) for first, second in SETS[name]]
    assert not replay(BlockPlan(0), lambda block: blocks[block]).is_clear
