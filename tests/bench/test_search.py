"""The search over curves whose knee is known; stops one that asks for more workers than are needed, for settings that were refused, or
for a change where nothing is to be gained."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from search_worlds import FakeClock, record_of

from shardtools.bench.search import TIME_BUDGET, Cell, Found, Goal, Outcome, Record, Space, find

CURRENT = Cell(2, 2)


def rates(table: dict[int, float], gains: dict[int, float] | None = None) -> Callable[[Cell], Outcome]:
    """Without noise: a rate for each W (of others, that of the next lower one), times a gain for P."""

    def run(cell: Cell) -> Outcome:
        rate = table[max(w for w in table if w <= cell.num_workers)]
        return Outcome("ok", rate * (gains or {}).get(cell.prefetch_factor, 1.0), epoch2_s=0.1)

    return run


def space(max_workers: int, cpus: int = 8, has_pinning: bool = False) -> Space:
    return Space(max_workers, f"{max_workers} workers", cpus, has_pinning=has_pinning)


def searched(run: Callable[[Cell], Outcome], over: Space, goal: Goal | None = None, record: Record | None = None) -> Found:
    return find(record or record_of(run), over, goal or Goal(CURRENT))


def linear(up_to: int, each: float = 100.0) -> dict[int, float]:
    return {w: each * max(1, min(w, up_to)) for w in range(65)}


@pytest.mark.parametrize("up_to", [1, 2, 3, 4, 6, 8, 12, 16])
def test_the_knee_of_a_curve_that_rises_to_a_plateau_is_where_it_ends(up_to: int) -> None:
    found = searched(rates(linear(up_to)), space(16))
    assert found.knee is not None
    # W = 1 is as fast as W = 0 here, which takes no worker at all.
    assert found.knee.num_workers == (0 if up_to == 1 else up_to)
    assert found.knee.prefetch_factor == 2


def test_the_space_is_the_published_one() -> None:
    assert space(16).workers() == [0, 1, 2, 4, 8, 16]
    assert space(6).workers() == [0, 1, 2, 4, 6]
    assert space(1).workers() == [0, 1]
    assert space(0).workers() == [0]
    assert len(space(4).cells()) == 1 + 3 * 3 * 2
    assert len(space(16, has_pinning=True).cells()) == 2 * (1 + 5 * 3 * 2)
    assert space(4).full_grid_trials == 57


def test_no_workers_win_where_sending_costs_more_than_making() -> None:
    found = searched(rates({0: 1000.0, 1: 300.0, 2: 320.0}), space(4))
    assert found.knee == Cell(0, 2, False, False)
    assert (found.recommended, found.is_change) == (found.knee, True)


def test_workers_that_save_less_than_five_percent_are_not_used() -> None:
    assert searched(rates({0: 100.0, 1: 100.0, 2: 190.0, 3: 280.0, 4: 282.0, 8: 284.0}), space(16)).knee == Cell(3)


def test_a_peak_between_two_doublings_is_found() -> None:
    """Six are best; the climb itself sees four and eight, which are as slow."""
    table = {0: 100.0, 1: 100.0, 2: 200.0, 3: 300.0, 4: 400.0, 5: 500.0, 6: 600.0, 7: 500.0, 8: 390.0, 12: 300.0}
    found = searched(rates(table), space(12, cpus=8), Goal(Cell(0, 2, False, False)))
    assert found.knee == Cell(6)


def test_the_limit_of_shards_is_kept() -> None:
    record = record_of(rates(linear(16)))
    found = find(record, Space(3, "3 shards", 8), Goal(CURRENT))
    assert (found.knee, found.stopped) == (Cell(3), "limit: 3 shards")
    assert max(cell.num_workers for cell in record.outcomes) == 3


@pytest.mark.parametrize(("gain", "factor"), [(1.0, 2), (1.02, 2), (1.1, 4)])
def test_a_longer_queue_has_to_bring_three_percent(gain: float, factor: int) -> None:
    found = searched(rates(linear(4), {4: gain, 8: gain * 1.005}), space(8))
    assert found.knee == Cell(4, factor)


def test_a_longer_queue_may_halve_the_longest_waits_instead() -> None:
    def run(cell: Cell) -> Outcome:
        p99 = {2: 100.0, 4: 90.0, 8: 30.0}[cell.prefetch_factor]
        return Outcome("ok", linear(4)[cell.num_workers], wait_p99_ms=p99, mean_step_ms=20.0)

    found = searched(run, space(8))
    assert found.knee is not None
    assert found.knee.num_workers == 4
    if found.record.count(Cell(4, 8)) > 1:
        assert found.knee.prefetch_factor == 8


def test_waits_that_nobody_feels_do_not_lengthen_the_queue() -> None:
    def run(cell: Cell) -> Outcome:
        return Outcome("ok", linear(4)[cell.num_workers], wait_p99_ms=1.0 / cell.prefetch_factor, mean_step_ms=20.0)

    assert searched(run, space(8)).knee == Cell(4, 2)


def test_refused_cells_are_never_run_and_asked_once() -> None:
    asked: list[Cell] = []

    def run(cell: Cell) -> Outcome:
        asked.append(cell)
        if cell.num_workers * cell.prefetch_factor > 12:
            return Outcome("refused", message="not run: shm 9.4 of 8 GB", is_trial=False)
        return Outcome("ok", linear(16)[cell.num_workers])

    record = record_of(run)
    found = find(record, space(16), Goal(Cell(8, 2)))
    assert found.knee == Cell(6, 2)
    assert found.stopped.startswith("limit: refused at ")
    refused = [cell for cell in asked if record.outcomes.get(cell, [Outcome("ok")])[0].status == "refused"]
    assert refused and len(refused) == len(set(refused))
    assert record.num_trials == len(asked) - len(refused)


@pytest.mark.parametrize("status", ["oom_shm", "fd", "hang", "error"])
def test_a_cell_that_fails_ends_the_climb_and_the_others_still_count(status: str) -> None:
    asked: list[Cell] = []

    def run(cell: Cell) -> Outcome:
        asked.append(cell)
        if cell.num_workers >= 8:
            return Outcome(status, message="it failed")  # type: ignore[arg-type]
        return Outcome("ok", linear(16)[cell.num_workers])

    found = searched(run, space(16))
    assert (found.knee, found.stopped) == (Cell(4), f"limit: {status} at 8 workers")
    assert sum(cell.num_workers >= 8 for cell in asked) == 1


def test_where_nothing_runs_there_is_no_knee_and_no_error() -> None:
    found = searched(lambda _: Outcome("error", message="no such file"), space(16))
    assert (found.knee, found.best, found.recommended, found.is_change) == (None, None, None, False)
    assert found.record.num_trials <= 6


@pytest.mark.parametrize("seed", range(20))
def test_whatever_cells_come_to_there_is_no_error_and_what_is_advised_went_well(seed: int) -> None:
    """Any of them may be refused or fail, W = 0 and the plain queue among them; the current one may lie outside what is searched."""
    random = np.random.Generator(np.random.Philox(seed))
    for _ in range(20):
        space = Space(int(random.choice([0, 1, 2, 4, 7, 16])), "cap", 4, has_pinning=bool(random.random() < 0.3))
        bad_share, fates = random.choice([0.1, 0.5, 0.9]), dict[Cell, str]()

        def run(cell: Cell, random: Any = random, bad_share: float = bad_share, fates: dict[Cell, str] = fates) -> Outcome:
            bad = random.choice(["refused", "oom_shm", "fd", "hang", "error"]) if random.random() < bad_share else "ok"
            status: Any = fates.setdefault(cell, str(bad))
            return Outcome(status, 100.0 * random.random() + 1 if status == "ok" else None, is_trial=status != "refused")

        current = Cell(int(random.choice([1, 2, 50])), int(random.choice([1, 2, 8])), persistent_workers=bool(random.random() < 0.5))
        found = find(record_of(run), space, Goal(current))
        assert all(cell is None or fates[cell] == "ok" for cell in (found.knee, found.best))


def test_a_device_that_is_fed_ends_the_search_with_one_trial() -> None:
    found = searched(lambda _: Outcome("ok", 960.0, device_rate=1000.0, au=0.96), space(16))
    assert (found.is_fed, found.stopped, found.record.num_trials) == (True, "fed", 1)
    assert (found.recommended, found.is_change) == (CURRENT, False)


def test_the_climb_begins_at_half_of_what_the_device_needs() -> None:
    """Without workers a sample takes 1/100 s, 1/1100 of it the device's: ten workers' work, so the climb begins at 5."""
    asked: list[int] = []

    def run(cell: Cell) -> Outcome:
        asked.append(cell.num_workers)
        load_s = 1 / 100 - 1 / 1100
        rate = 100.0 if cell.num_workers == 0 else min(cell.num_workers / load_s, 1100.0)
        return Outcome("ok", rate, device_rate=1100.0, au=rate / 1100.0)

    found = searched(run, space(32, cpus=16), Goal(Cell(0, 2, False, False)))
    assert list(dict.fromkeys(asked))[:3] == [0, 5, 10]
    assert found.knee == Cell(10)


def test_current_settings_that_are_as_good_stay() -> None:
    found = searched(rates(linear(2)), space(4), Goal(Cell(2, 2)))
    assert (found.recommended, found.is_change, found.confirmation) == (Cell(2), False, None)


def test_a_change_is_confirmed_in_paired_blocks() -> None:
    found = searched(rates(linear(4)), space(8), Goal(Cell(1, 2)))
    assert found.confirmation is not None and found.confirmation.comparison is not None
    assert (found.confirmation.first, found.confirmation.second) == (Cell(1), Cell(4))
    assert found.confirmation.comparison.n == 6
    assert found.confirmation.comparison.ratio == pytest.approx(4.0)
    assert (found.recommended, found.is_change) == (Cell(4), True)


def test_as_fast_with_fewer_workers_is_a_change_worth_making() -> None:
    found = searched(rates(linear(2)), space(16), Goal(Cell(8, 2)))
    assert (found.recommended, found.is_change) == (Cell(2), True)


def test_a_winner_by_luck_is_not_confirmed() -> None:
    """W = 4 is 4 % faster in the search and 10 % slower in the blocks: the current settings stay."""
    seen: dict[Cell, int] = {}

    def run(cell: Cell) -> Outcome:
        seen[cell] = seen.get(cell, 0) + 1
        rate = {0: 50.0, 1: 60.0, 2: 100.0, 3: 101.0, 4: 110.0}[cell.num_workers]
        if cell.num_workers == 4 and seen[cell] > 5:
            rate = 90.0
        return Outcome("ok", rate)

    found = searched(run, space(4, cpus=2))
    if found.knee == Cell(4):
        assert found.confirmation is not None
        assert (found.recommended, found.is_change) == (CURRENT, False)


def test_a_current_setting_that_fails_is_changed_without_blocks() -> None:
    def run(cell: Cell) -> Outcome:
        if cell.prefetch_factor == 16:
            return Outcome("oom_shm", message="shared memory was full")
        return Outcome("ok", linear(4)[cell.num_workers])

    found = searched(run, space(8), Goal(Cell(4, 16)))
    assert (found.recommended, found.is_change, found.confirmation) == (Cell(4), True, None)


@pytest.mark.parametrize(("factor", "pins"), [(0.7, False), (1.0, False), (1.3, True)])
def test_pinning_is_tried_both_ways_on_cuda_alone(factor: float, pins: bool) -> None:
    def run(cell: Cell) -> Outcome:
        return Outcome("ok", linear(4)[cell.num_workers] * (factor if cell.pin_memory else 1.0))

    found = searched(run, space(8, has_pinning=True), Goal(Cell(4, 2)))
    assert found.pinning is not None and found.pinning.comparison is not None
    assert found.recommended == Cell(4, 2, pins)
    from_one = searched(run, space(8, has_pinning=True), Goal(Cell(1, 2)))
    assert (from_one.recommended, from_one.is_change) == (Cell(4, 2, pins), True)
    assert searched(run, space(8), Goal(Cell(4, 2))).pinning is None


@pytest.mark.parametrize(("restart_s", "keeps"), [(0.5, True), (0.12, False)])
def test_workers_are_kept_where_that_saves_half_a_percent_of_an_epoch(restart_s: float, keeps: bool) -> None:
    """An epoch of 4,000 samples takes 10 s: 0.4 s are 4 %, 0.02 s are 0.2 %."""

    def run(cell: Cell) -> Outcome:
        return Outcome("ok", linear(4)[cell.num_workers], epoch2_s=0.1 if cell.persistent_workers else restart_s)

    record = record_of(run)
    record.start_of = lambda cell: 0.1 if cell.persistent_workers else restart_s
    found = find(record, space(8), Goal(Cell(4, 2), num_samples=4000))
    assert found.saving.epoch_share == pytest.approx((restart_s - 0.1) / 10)
    assert found.recommended == Cell(4, 2, False, keeps)
    assert not any(cell.num_workers and not cell.persistent_workers for cell in record.outcomes)


def test_time_that_is_up_ends_the_search_with_what_is_known() -> None:
    clock = FakeClock()

    def run(cell: Cell) -> Outcome:
        clock.now += 10.0
        return Outcome("ok", linear(16)[cell.num_workers])

    record = record_of(run, 60.0, clock)
    found = find(record, space(16), Goal(CURRENT))
    assert found.stopped == TIME_BUDGET
    assert clock.now <= 60.0
    assert found.knee is not None


@pytest.mark.parametrize("seconds", [5.0, 30.0, 60.0, 100.0, 150.0])
def test_the_budget_of_time_is_kept(seconds: float) -> None:
    clock = FakeClock()

    def run(cell: Cell) -> Outcome:
        clock.now += 5.0
        return Outcome("ok", linear(6)[cell.num_workers] * (1 + 0.02 * math.sin(clock.now)))

    find(record_of(run, seconds, clock), space(16), Goal(Cell(8, 4)))
    assert 0 < clock.now <= seconds


@pytest.mark.parametrize("seed", range(5))
def test_the_search_leaves_time_to_confirm_what_it_found(seed: int) -> None:
    """Noise of 5 % keeps the search busy; twenty-one trials fit."""
    clock, random = FakeClock(), np.random.Generator(np.random.Philox(seed))

    def run(cell: Cell) -> Outcome:
        clock.now += 7.0
        return Outcome("ok", linear(6)[cell.num_workers] * math.exp(random.normal(0, 0.05)))

    found = find(record_of(run, 150.0, clock), space(16), Goal(Cell(1, 2)))
    assert found.confirmation is not None and found.confirmation.comparison is not None
    assert found.is_change


def test_without_enough_blocks_a_small_gain_is_no_reason_to_change() -> None:
    clock = FakeClock()

    def run(cell: Cell) -> Outcome:
        clock.now += 20.0
        return Outcome("ok", {0: 60.0, 1: 70.0, 2: 100.0, 4: 108.0}[min(cell.num_workers, 4) if cell.num_workers != 3 else 2])

    found = find(record_of(run, 150.0, clock), space(4, cpus=2), Goal(CURRENT))
    assert (found.recommended, found.is_change) == (CURRENT, False)


def test_the_full_grid_runs_every_cell_as_often_and_in_rounds() -> None:
    asked: list[Cell] = []

    def run(cell: Cell) -> Outcome:
        asked.append(cell)
        return Outcome("ok", linear(4)[cell.num_workers], epoch2_s=0.1)

    over = space(4)
    found = searched(run, over, Goal(CURRENT, "grid"))
    cells = over.cells()
    assert found.stopped == "full grid"
    assert found.num_search_trials == over.full_grid_trials
    assert all(found.record.count(cell) == 3 for cell in cells)
    assert set(asked[1 : len(cells)]) | {CURRENT} == set(cells)
    rounds = [tuple(asked[1 + i * len(cells) : 18 + i * len(cells)]) for i in range(3)]
    assert len({*rounds, tuple(cells[:17]), tuple(cells[1:18])}) == 5
    assert found.knee == Cell(4)


def test_a_grid_whose_time_is_up_has_every_cell_before_any_twice() -> None:
    clock = FakeClock()

    def run(cell: Cell) -> Outcome:
        clock.now += 1.0
        return Outcome("ok", linear(4)[cell.num_workers])

    over = space(4)
    found = find(record_of(run, 42.0, clock), over, Goal(CURRENT, "grid"))
    counts = [found.record.count(cell) for cell in over.cells()]
    assert found.stopped == TIME_BUDGET
    assert max(counts) - min(counts) <= 1
    assert min(counts) >= 1
