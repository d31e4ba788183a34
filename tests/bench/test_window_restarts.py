"""Sets that end inside the window are read again and again: stops a rate that has restarts in it, and one that is flattered by them.

Workers are simulated on a made-up clock in whole milliseconds, as a DataLoader drives them, so that the right rate is known: each of W
makes a batch in t, which is W / t a millisecond, or one batch per step of a consumer that takes longer than that.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from shardtools.bench.window import Hooks, WindowFacts, WindowRule, measure


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> float:
        return self.ms


@dataclass
class Loader:
    """Begun again for each pass. Batch i is made by worker i mod W, which has P batches to do or done at most."""

    clock: Clock
    costs: Sequence[int]
    """Milliseconds a batch, by worker."""
    prefetch_factor: int
    num_batches: int
    begin_ms: int = 0
    """The call of ``iter``, before any worker has something to do."""
    late_ms: int = 0
    """The first worker begins so much later, as one does that has to import first; the others fill their queues meanwhile."""
    step_ms: int = 0
    """The consumer's."""
    parts: Sequence[int] = (1,)
    """Factors of the costs over the course of a pass: a reader's buffer is filled first, and drained at the end."""
    num_passes: int = 0

    def __call__(self) -> Iterator[int]:
        self.clock.ms += self.begin_ms
        self.num_passes += 1
        return self._batches(self.clock.ms)

    def _batches(self, begun: int) -> Iterator[int]:
        num_workers = len(self.costs)
        ahead = max(1, num_workers * self.prefetch_factor)
        free = [begun + self.late_ms, *[begun] * (num_workers - 1)]
        asked = [begun] * ahead
        for i in range(self.num_batches):
            worker = i % num_workers
            factor = self.parts[i * len(self.parts) // self.num_batches]
            free[worker] = max(free[worker], asked[i]) + self.costs[worker] * factor
            self.clock.ms = max(self.clock.ms, free[worker])
            asked.append(self.clock.ms)
            self.clock.ms += self.step_ms
            yield 1


def rule_of(loader: Loader, num_workers: int | None = None, **more: int) -> WindowRule:
    count = len(loader.costs) if num_workers is None else num_workers
    asked = WindowRule(count, loader.prefetch_factor, min_seconds=2_000, warm_seconds=0, max_seconds=10**9)
    return replace(asked, **more)


def measured(loader: Loader, rule: WindowRule | None = None) -> WindowFacts:
    found = measure(loader(), loader, int, rule or rule_of(loader), Hooks(loader.clock))
    assert found.is_looped and found.label == "warm"
    assert loader.num_passes == found.passes_before + found.num_passes
    return found


@pytest.mark.parametrize("num_batches", [1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 25, 31, 40, 49])
@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 4), (8, 2)])
def test_the_rate_is_that_of_the_workers_however_small_the_set(num_workers: int, prefetch_factor: int, num_batches: int) -> None:
    """A restart takes 500 ms, as long as a hundred batches."""
    loader = Loader(Clock(), [40] * num_workers, prefetch_factor, num_batches, begin_ms=500)
    found = measured(loader)
    workers_with_work = min(num_workers, num_batches)
    assert found.throughput == pytest.approx(workers_with_work / 40, rel=1e-12)
    assert found.throughput_with_restarts == pytest.approx(num_batches / (500 + 40 * -(-num_batches // num_workers)), rel=1e-12)
    assert found.restart_s == found.num_passes * 540


@pytest.mark.parametrize("seed", range(20))
def test_no_restart_ever_flatters_the_rate(seed: int) -> None:
    """Sets, workers and restarts of any kind: a late worker behind whom queues fill, a slow ``iter``, a consumer of any speed."""
    draw = random.Random(seed)
    for _ in range(60):
        num_workers, cost, step = draw.randint(1, 6), draw.choice((6, 60, 240)), draw.choice((0, 0, 1, 30, 100))
        loader = Loader(
            Clock(),
            [cost] * num_workers,
            draw.randint(1, 5),
            draw.randint(1, 60),
            begin_ms=draw.choice((0, 30, 800)),
            late_ms=draw.choice((0, 0, 50, 2000)),
            step_ms=step,
        )
        right = min(num_workers / cost, 1 / step if step else 1)
        found = measure(loader(), loader, int, rule_of(loader), Hooks(loader.clock))
        assert found.throughput <= right * (1 + 1e-12), loader
        assert (found.throughput_with_restarts or 0) <= found.throughput * (1 + 1e-12), loader


@pytest.mark.parametrize("step_ms", [0, 25, 60])
@pytest.mark.parametrize("late_ms", [0, 200, 5000])
def test_what_lay_ready_after_a_pause_is_drained_first(late_ms: int, step_ms: int) -> None:
    """4 workers, 2 each: while the first is late the others make 6 batches, which then come in no time. 16 steps are drained, 24 count."""
    loader = Loader(Clock(), [100] * 4, 2, 40, begin_ms=30, late_ms=late_ms, step_ms=step_ms)
    found = measured(loader)
    assert found.throughput == 1 / max(25, step_ms)
    assert [step for step in range(40) if found.counts(step)] == list(range(16, 40))


def test_taking_out_the_wait_for_the_first_batch_alone_would_flatter() -> None:
    """12 batches of 4 workers in three rounds of 100 ms. Less the wait for the first, 200 ms would seem to make 12."""
    found = measured(Loader(Clock(), [100] * 4, 1, 12, begin_ms=70))
    naive = found.samples / (found.wall_s - found.restart_s)
    assert naive == 12 / 200
    assert found.throughput == 12 / 300


def test_workers_of_different_speed_count_by_whole_rounds() -> None:
    """A batch of the slow worker paces all: four batches in 90 ms."""
    for num_batches in (21, 22, 23, 24, 60):
        found = measured(Loader(Clock(), [10, 90, 20, 30], 1, num_batches, begin_ms=300))
        assert found.throughput == pytest.approx(4 / 90, rel=1e-12)


def test_a_reader_that_reads_ahead_is_measured_over_all_it_does() -> None:
    """A shuffle buffer reads twice as fast as it gives while it fills, and nothing at the end: 30 ms a batch, then 10, 20 in the mean."""
    loader = Loader(Clock(), [30 // 3, 30 // 3], 2, 40, begin_ms=200, parts=(3, 1))
    fair = measured(loader, rule_of(loader, ahead_samples=2000))
    assert fair.throughput == 40 / (20 * 20)
    again = Loader(Clock(), [10, 10], 2, 40, begin_ms=200, parts=(3, 1))
    assert measured(again).throughput > 1.1 * fair.throughput


def test_what_a_buffer_had_read_before_the_window_is_told() -> None:
    """100 batches of one sample; the window begins after 8 and has 50. With a buffer of 30 or 42 as many are read within it; with one of
    60 the first 68 had been read, so that only 32 were left to read; with one of 92 none."""
    for ahead, share in ((0, 0.0), (30, 0.0), (42, 0.0), (60, 18 / 50), (92, 1.0), (5000, 1.0)):
        loader = Loader(Clock(), [10, 10], 2, 100)
        rule = rule_of(loader, ahead_samples=ahead, num_samples=100)
        found = measure(loader(), loader, int, replace(rule, min_seconds=0), Hooks(loader.clock))
        assert found.label == "first_pass"
        assert found.ahead_share == pytest.approx(share)
    loader = Loader(Clock(), [10, 10], 2, 100)
    unknown = rule_of(loader, ahead_samples=30, min_seconds=0)
    assert measure(loader(), loader, int, unknown, Hooks(loader.clock)).ahead_share is None


def test_without_workers_every_step_counts() -> None:
    loader = Loader(Clock(), [40], 2, 7, begin_ms=100)
    found = measured(loader, rule_of(loader, num_workers=0))
    assert found.throughput == 1 / 40
    assert all(found.counts(step) for step in range(found.steps))


def test_passes_of_other_lengths_than_the_one_before() -> None:
    """41, 40, 39, ... batches: where the last whole round ended counts."""

    class Shrinking(Loader):
        def __call__(self) -> Iterator[int]:
            self.num_batches -= 1
            return super().__call__()

    loader = Shrinking(Clock(), [40] * 4, 2, 46, begin_ms=100)
    found = measured(loader, rule_of(loader, min_seconds=500))
    assert found.throughput == pytest.approx(0.1, rel=1e-12)


def test_a_set_that_is_slow_to_begin_ends_at_the_longest_time() -> None:
    loader = Loader(Clock(), [10], 2, 5, begin_ms=1000)
    found = measured(loader, rule_of(loader, max_seconds=5000, min_seconds=5000))
    assert found.is_short
    assert found.num_passes == 5
    assert found.throughput == 1 / 10


def test_the_device_is_waited_for_where_counting_begins_and_ends() -> None:
    """Its work behind the host, 7 ms at each wait, is in the time of the steps that count, and not in that of the others."""
    loader = Loader(Clock(), [10, 10], 2, 40, begin_ms=300)
    waits: list[int] = []

    def sync() -> None:
        waits.append(loader.clock.ms)
        loader.clock.ms += 7

    found = measure(loader(), loader, int, rule_of(loader), Hooks(loader.clock, sync=sync))
    assert found.is_looped
    # Of 40 steps 8 are drained, then the device is waited for, while the workers go on; 32 are 16 rounds of 10 ms: the first comes 7 ms
    # early, and the device ends 7 ms after the last.
    # The first two waits are those of the first pass, and of the second at its begin; the last is that of the end.
    told = found.as_json()
    assert told["steady_steps"] == 32 * found.num_passes
    assert len(waits) == 2 + 2 * found.num_passes + 1
    assert told["steady_s"] == found.num_passes * 16 * 10


@pytest.mark.parametrize("num_batches", [3, 7])
def test_the_slowest_steps_have_no_restart_in_them(num_batches: int) -> None:
    found = measured(Loader(Clock(), [40], 2, num_batches, begin_ms=900))
    assert found.step_p99_ms == 40 * 1000


def test_many_passes_are_judged_in_a_moment() -> None:
    """A set of three batches that take a millisecond, read for a minute and a half: 90,000 steps, of which two of three count."""
    loader = Loader(Clock(), [1], 1, 3)
    found = measured(loader, rule_of(loader, min_seconds=60_000))
    assert found.num_passes == 30_000
    assert sum(map(found.counts, range(found.steps))) == found.as_json()["steady_steps"]
