"""The window counts what lasts: stops a rate that is the prefetch queue's, or a fraction of a period's.

Every right answer is known beforehand: the clock is made up, and exact, in whole milliseconds.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, cycle, islice, repeat

import pytest

from shardtools.bench.spec import Settings
from shardtools.bench.window import Hooks, Window, WindowFacts, WindowRule, measure
from shardtools.errors import UsageError


class Clock:
    """Milliseconds that pass only when somebody waits."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> float:
        return self.ms

    def wait(self, ms: int) -> None:
        self.ms += ms


def steps(clock: Clock, times: Sequence[int] | Iterator[int], batch: int = 1) -> Iterator[int]:
    """One batch after each of the waits."""
    for ms in times:
        clock.wait(ms)
        yield batch


def no_second_pass() -> Iterator[int]:
    raise AssertionError("the set was to be long enough")


def rule(num_workers: int, prefetch_factor: int = 2, min_seconds: float = 0, warm_seconds: float = 0, **more: float) -> WindowRule:
    """Seconds are the made-up clock's milliseconds."""
    limits = {"max_seconds": 10**9} | more
    return WindowRule(num_workers, prefetch_factor, min_seconds=min_seconds, warm_seconds=warm_seconds, **limits)  # type: ignore[arg-type]


def measured(times: Iterator[int], asked: WindowRule, hooks: Callable[[Clock], Hooks] | None = None) -> WindowFacts:
    clock = Clock()
    found = measure(steps(clock, times), no_second_pass, int, asked, hooks(clock) if hooks else Hooks(clock))
    assert not found.is_looped
    return found


@pytest.mark.parametrize(
    ("num_workers", "prefetch_factor", "warm", "num_steps"),
    [
        (0, 2, 0, 50),
        (1, 2, 4, 50),
        (2, 2, 8, 50),
        (3, 1, 6, 51),
        (4, 1, 8, 52),
        (4, 2, 16, 80),
        (7, 1, 14, 70),
        (8, 4, 64, 320),
        (3, 2, 12, 60),
    ],
)
def test_warm_up_and_steps_are_as_the_method_says(num_workers: int, prefetch_factor: int, warm: int, num_steps: int) -> None:
    asked = WindowRule.of(Settings(num_workers, prefetch_factor))
    assert (asked.warm_steps, asked.steps) == (warm, num_steps)
    assert (asked.min_seconds, asked.warm_seconds) == (5.0, 1.0)
    found = measured(repeat(1), rule(num_workers, prefetch_factor))
    assert (found.warm_steps, found.steps, found.samples) == (max(1, warm), num_steps, num_steps)


def test_step_times_that_repeat_with_the_workers_average_out_exactly() -> None:
    """Two workers that alternate 73 and 9 ms make a batch each 41 ms, wherever the window begins and however long it has to last."""
    for offset in range(2):
        for min_ms in (0, 3001, 5000, 5010):
            found = measured(islice(cycle([73, 9]), offset, None), rule(2, min_seconds=min_ms))
            assert found.wall_s / found.steps == 41
            assert found.steps % 2 == 0
            assert found.wall_s >= min_ms


@pytest.mark.parametrize("num_workers", range(1, 9))
def test_any_pattern_of_any_number_of_workers_averages_out_exactly(num_workers: int) -> None:
    draw = random.Random(num_workers)
    for _ in range(50):
        pattern = [draw.choice((0, 1, 5, 40, 900)) + 1 for _ in range(num_workers)]
        found = measured(cycle(pattern), rule(num_workers, draw.randint(1, 8), draw.randint(0, 9000), draw.randint(0, 2000)))
        assert found.wall_s * num_workers == found.steps * sum(pattern), pattern
        assert found.throughput == pytest.approx(num_workers / sum(pattern), rel=1e-12)


def test_a_full_queue_at_the_start_is_not_in_the_rate() -> None:
    """4 workers, 4 each: after a pause 16 batches lie ready and take 3 ms; then the loader makes one each 40 ms."""
    found = measured(chain(repeat(3, 16), repeat(40)), rule(4, 4))
    assert found.wall_s / found.steps == 40
    assert found.warm_steps == 32
    assert found.steps == 160
    assert found.queue_share == 0.1


class Workers:
    """Workers as a DataLoader drives them: batch i is made by worker i mod W, which has P batches to do or done at most."""

    def __init__(self, clock: Clock, costs: Sequence[int], prefetch_factor: int) -> None:
        self.clock, self.costs, self.prefetch_factor = clock, costs, prefetch_factor

    def batches(self, num_batches: int) -> Iterator[int]:
        num_workers = len(self.costs)
        taken: list[int] = []
        free = [self.clock.ms] * num_workers
        made: list[int] = []
        for index in range(num_batches + num_workers * self.prefetch_factor):
            asked_for = index - num_workers * self.prefetch_factor
            if asked_for >= 0:
                self.clock.wait(max(0, made[asked_for] - self.clock.ms))
                taken.append(self.clock.ms)
            worker = index % num_workers
            free[worker] = max(free[worker], taken[asked_for] if asked_for >= 0 else free[worker]) + self.costs[worker]
            made.append(free[worker])
            if asked_for >= 0:
                yield 1


@pytest.mark.parametrize("prefetch_factor", [1, 2, 8])
@pytest.mark.parametrize("num_workers", [1, 2, 3, 5])
def test_simulated_workers_with_a_full_queue_are_measured_at_the_rate_they_make_batches(num_workers: int, prefetch_factor: int) -> None:
    clock = Clock()
    batches = Workers(clock, [80] * num_workers, prefetch_factor).batches(10_000)
    first = next(batches)
    clock.wait(5000)  # A model is built, and the workers fill the queue meanwhile.
    found = measure(chain([first], batches), no_second_pass, int, rule(num_workers, prefetch_factor), Hooks(clock))
    assert found.wall_s / found.steps == 80 / num_workers


def test_the_warm_up_lasts_a_second_too() -> None:
    found = measured(repeat(2), rule(2, 2, warm_seconds=1000))
    assert found.warm_steps == 500
    assert found.warm_s == 1000


def test_a_slow_loader_is_not_measured_for_ever_and_that_is_said() -> None:
    found = measured(repeat(1000), rule(4, 2, min_seconds=5000, max_seconds=30_000))
    assert found.steps == 32
    assert found.is_short
    assert found.wall_s == 32_000


def test_a_loader_that_gets_slower_is_told() -> None:
    found = measured(chain(repeat(10, 33), repeat(20)), rule(2, 2))
    assert found.steps == 50
    assert found.drift == pytest.approx(-0.5, abs=0.03)
    assert measured(cycle([73, 9]), rule(2, 2)).drift == 0


def test_the_device_is_waited_for_at_both_ends_and_never_between() -> None:
    """Each wait takes 300 ms: the first is before the window, the last in it."""
    calls: list[int] = []

    def with_device(clock: Clock) -> Hooks:
        return Hooks(clock, sync=lambda: (calls.append(clock.ms), clock.wait(300))[0])

    found = measured(repeat(10), rule(2, 2), with_device)
    assert calls == [80, 80 + 300 + 500]
    assert found.wall_s == 500 + 300


class SmallSet:
    """A loader of few batches whose every pass takes a while to begin, and longer when the one before was left early."""

    def __init__(self, clock: Clock, batches: Sequence[int], begin_ms: int, step_ms: int) -> None:
        self.clock, self.sizes, self.begin_ms, self.step_ms = clock, batches, begin_ms, step_ms
        self.num_passes = 0
        self.is_exhausted = True

    def __call__(self) -> Iterator[int]:
        # As a loader with persistent workers, which waits for the batches under way and throws them away.
        self.clock.wait(self.begin_ms if self.is_exhausted else 667)
        self.num_passes += 1
        self.is_exhausted = False
        return self._batches()

    def _batches(self) -> Iterator[int]:
        for size in self.sizes:
            self.clock.wait(self.step_ms)
            yield size
        self.is_exhausted = True


def measured_set(data: SmallSet, asked: WindowRule, hooks: Hooks | None = None) -> WindowFacts:
    return measure(data(), data, int, asked, hooks or Hooks(data.clock))


def test_a_set_smaller_than_the_window_is_read_in_whole_passes_and_labelled() -> None:
    """Seven batches, the last a half: 104 samples take 30 ms to begin and 70 to read. Six steps of each pass count, three a worker."""
    data = SmallSet(Clock(), [16] * 6 + [8], begin_ms=30, step_ms=10)
    found = measured_set(data, rule(2, 2, min_seconds=2000))
    assert (found.is_looped, found.label, found.passes_before) == (True, "warm", 2)
    assert found.throughput == 16 / 10
    assert found.throughput_with_restarts == 104 / 100
    assert found.samples == 104 * found.num_passes
    assert found.pass_samples == 104
    assert found.restart_s == found.num_passes * (30 + 10)
    assert found.wall_s == found.num_passes * 100
    told = found.as_json()
    assert told["steady_s"] == found.num_passes * 60 >= 2000
    assert told["steady_steps"] == 6 * found.num_passes >= 50
    assert told["steady_samples"] == 96 * found.num_passes
    assert found.step_s == 10
    assert [step for step in range(14) if not found.counts(step)] == [6, 13]
    assert found.warm_steps == 14  # The first pass has fewer than the 8 of warm-up, the second begins the count at its end.


def test_a_set_that_ends_inside_the_window_is_measured_anew_in_whole_passes() -> None:
    """40 batches: the window begins after 8 and would need 50. What it had is not mixed with what was read before."""
    starts: list[int] = []
    clock = Clock()
    data = SmallSet(clock, [4] * 40, begin_ms=300, step_ms=10)
    found = measured_set(data, rule(2, 2, min_seconds=500), Hooks(clock, on_start=lambda: starts.append(clock.ms)))
    assert (found.warm_steps, found.num_passes, found.steps) == (40, 2, 80)
    assert found.throughput == 4 / 10
    assert found.throughput_with_restarts == 160 / 700
    assert [step for step in range(80) if not found.counts(step)] == [*range(8), *range(40, 48)]
    assert starts == [380, 700]
    assert not found.is_short


def test_the_first_pass_of_a_slow_loader_is_kept_when_it_lasted_long_enough() -> None:
    data = SmallSet(Clock(), [4] * 40, begin_ms=300, step_ms=1000)
    found = measured_set(data, rule(2, 2, min_seconds=5000))
    assert (found.is_looped, found.is_short, found.steps) == (False, True, 32)
    assert (found.label, found.passes_before, found.throughput_with_restarts) == ("first_pass", 0, None)
    assert found.throughput == 4 / 1000
    assert data.num_passes == 1


def test_a_window_for_a_cold_cache_stays_in_the_first_pass() -> None:
    """Its end shortens the window, and the second of warm-up gives way, but a warm pass is never measured instead."""
    data = SmallSet(Clock(), [4] * 70, begin_ms=300, step_ms=10)
    asked = rule(2, 2, min_seconds=5000, warm_seconds=1000, stays_in_first_pass=True, num_batches=70)
    found = measured_set(data, asked)
    assert (found.is_looped, found.is_short) == (False, True)
    assert (found.warm_steps, found.steps, found.wall_s) == (20, 50, 500)
    assert data.num_passes == 1


def test_a_set_too_small_for_a_cold_window_loops_and_says_so() -> None:
    data = SmallSet(Clock(), [4] * 12, begin_ms=300, step_ms=10)
    found = measured_set(data, rule(2, 2, stays_in_first_pass=True, num_batches=12))
    assert (found.is_looped, found.label, found.passes_before) == (True, "warm", 1)
    assert found.throughput == 4 / 10
    assert found.throughput_with_restarts == 48 / 420


def test_a_loader_is_never_begun_again_before_it_is_exhausted() -> None:
    """Left early and begun again, it would spend 667 ms on batches of no use."""
    clock = Clock()
    fresh = SmallSet(clock, [1] * 9, begin_ms=100, step_ms=10)
    assert measured_set(fresh, rule(2, 2, min_seconds=4000)).throughput_with_restarts == 9 / 190
    left = SmallSet(clock, [1] * 9, begin_ms=100, step_ms=10)
    next(left())
    before = clock.ms
    next(left())
    assert clock.ms - before == 667 + 10


def test_a_loader_without_batches_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a loader with at least one batch a pass, got none"):
        measure(iter([]), lambda: iter([]), int, rule(2, 2), Hooks(Clock()))


def test_a_loop_of_ones_own_may_tell_the_window_each_step() -> None:
    clock = Clock()
    window = Window(rule(2, 2), Hooks(clock))
    with pytest.raises(RuntimeError, match="not full"):
        window.facts()
    told = 0
    while True:
        clock.wait(5)
        told += 1
        if not window.step(64):
            break
    assert told == 8 + 50
    facts = window.facts()
    assert facts.throughput == 64 / 5
    assert facts.step_ends == tuple(5 * step for step in range(1, 51))
    assert facts.as_json()["samples"] == 50 * 64
