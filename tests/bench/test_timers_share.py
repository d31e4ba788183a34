"""What the timers cost is counted, not guessed: stops a report whose instruments slow down what they measure."""

import time

import pytest

pytest.importorskip("torch", reason="needs the extra train")

from shardtools.bench.timers import StageTimers

pytestmark = pytest.mark.train


def test_the_share_is_uses_times_their_cost_over_all_workers() -> None:
    """10,000 uses cost between 2 us (nothing is cheaper) and 200 us (a very slow machine) each: of one second 0.02 to 2 worker-seconds."""
    timers = StageTimers(4)
    assert timers.own_share(1.0) == 0.0
    began = time.perf_counter()
    for _ in range(10_000):
        with timers.stage("decode"):
            pass
    seconds = time.perf_counter() - began
    assert timers.own_share(1.0) == pytest.approx(seconds / 4, rel=2.0)
    assert timers.own_share(10.0) == pytest.approx(seconds / 40, rel=2.0)
    timers.clear()
    assert timers.own_share(1.0) == 0.0
