"""Shared memory that ends a search while the loader still became faster; stops that being told as a footnote of a table, and blame for
shared memory where more workers would have gained nothing, or where something else ended the search."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from search_worlds import record_of
from verdict_cases import CAPPED, PHOTOS
from verdict_cases import found as attributed

from shardtools.bench.attribution import Attribution, Fact, Gain, capped
from shardtools.bench.report.verdict_words import in_words
from shardtools.bench.search import Cell, Goal, Outcome, Space, find
from shardtools.bench.search.capped import Capped, capped_by_shm

SPACE = Space(8, "8 workers", 4)


def search(
    rate: Callable[[Cell], float],
    most_workers: int = 8,
    most_ahead: int = 8,
    status: Any = "refused",
    space: Space = SPACE,
    device_rate: float | None = None,
) -> Capped | None:
    """Of a machine on which no more than that fits."""

    def lacks_room(cell: Cell) -> bool:
        return cell.num_workers > most_workers or cell.num_workers * cell.prefetch_factor > most_ahead * most_workers

    def run(cell: Cell) -> Outcome:
        if lacks_room(cell):
            return Outcome(status, message="", is_trial=status != "refused")
        return Outcome("ok", rate(cell), device_rate=device_rate)

    found = find(record_of(run), space, Goal(Cell(1)))
    return capped_by_shm(found, space, lacks_room if status == "refused" else lambda _: False)


def linear(cell: Cell) -> float:
    return 100.0 * max(1, cell.num_workers)


def test_workers_that_still_gain_and_have_no_room() -> None:
    found = search(linear, most_workers=4)
    assert found is not None
    assert (found.at, found.wanted) == (Cell(4), Cell(8))
    assert (found.rate, found.is_seen) == (400.0, False)
    assert found.before.num_workers in (2, 3)
    assert found.last_gain == pytest.approx(4 / found.before.num_workers)
    assert found.most_gain == pytest.approx(2.0)


@pytest.mark.parametrize("most_workers", [5, 14, 17, 23, 31, 47])
def test_a_limit_that_was_narrowed_down_to_one_worker_does_not_hide_the_gain(most_workers: int) -> None:
    """31 of 64 workers are 3 % faster than 30, which were tried just before."""
    found = search(linear, most_workers, 2, space=Space(64, "64 workers", 32))
    assert found is not None
    assert (found.at, found.wanted) == (Cell(most_workers), Cell(min(2 * most_workers, 64)))
    assert found.most_gain == pytest.approx(found.wanted.num_workers / most_workers)


@pytest.mark.parametrize("most_workers", [5, 14, 23, 31])
def test_a_plateau_below_the_limit_is_not_called_shared_memory(most_workers: int) -> None:
    top = most_workers // 2
    assert search(lambda cell: linear(Cell(min(cell.num_workers, top))), most_workers, 2, space=Space(64, "64 workers", 32)) is None


@pytest.mark.parametrize(("device_rate", "most_gain"), [(600.0, 1.5), (1000.0, 2.0)])
def test_the_gain_ends_where_the_device_is_fed(device_rate: float, most_gain: float) -> None:
    found = search(linear, most_workers=4, device_rate=device_rate)
    assert found is not None
    assert found.most_gain == pytest.approx(most_gain)


def test_two_workers_are_at_most_twice_as_fast_as_one() -> None:
    """How much faster one worker is than none says nothing about the second."""
    found = search(lambda cell: 300.0 if cell.num_workers else 100.0, most_workers=1, most_ahead=2)
    assert found is not None
    assert (found.before, found.at, found.most_gain) == (Cell(0, persistent_workers=False), Cell(1), 2.0)


def test_what_could_gain_almost_nothing_more_is_not_called_shared_memory() -> None:
    """With the last setting that has room the device is busy 96 % of the time, with 62 of 64 workers most of them are there."""
    assert search(linear, most_workers=4, device_rate=415.0) is None
    assert search(linear, most_workers=1, device_rate=103.0) is None
    assert search(linear, 62, 2, space=Space(64, "64 workers", 32)) is None


def test_the_gain_that_is_foreseen_ends_where_each_worker_brings_less() -> None:
    found = search(lambda cell: 100.0 * max(1, cell.num_workers) ** 0.5, most_workers=4)
    assert found is not None
    assert found.most_gain == pytest.approx(2**0.5)


def test_a_trial_that_ran_out_was_seen() -> None:
    found = search(linear, most_workers=4, status="oom_shm")
    assert found is not None
    assert (found.at, found.wanted, found.is_seen) == (Cell(4), Cell(8), True)


def test_a_longer_queue_that_still_gains_and_has_no_room() -> None:
    found = search(lambda cell: 300.0 + 100.0 * (cell.prefetch_factor >= 4) if cell.num_workers else 200.0, most_workers=1, most_ahead=4)
    assert found is not None
    assert (found.at.prefetch_factor, found.wanted.prefetch_factor) == (4, 8)


@pytest.mark.parametrize(
    ("rate", "most_workers", "status"),
    [
        pytest.param(lambda cell: 100.0 * min(max(1, cell.num_workers), 2), 4, "refused", id="more gains nothing"),
        pytest.param(linear, 8, "refused", id="all fits"),
        pytest.param(linear, 4, "fd", id="descriptors ran out"),
        pytest.param(linear, 4, "error", id="it failed"),
        pytest.param(lambda cell: 500.0 if not cell.num_workers else linear(cell) / 4, 2, "refused", id="no workers are best"),
    ],
)
def test_nothing_else_is_called_shared_memory(rate: Callable[[Cell], float], most_workers: int, status: Any) -> None:
    assert search(rate, most_workers, status=status) is None


TOLD = Fact("capped", CAPPED)


def test_it_takes_the_place_of_the_stage_that_more_workers_would_share() -> None:
    told = capped(attributed("decode", {"budget": {"seconds": 90.0}}), TOLD)
    assert (told.verdict, told.stage, told.confidence) == ("shared_memory", None, "medium")
    assert told.gain == Gain(1.5, None, "decode")
    assert [fact.kind for fact in told.facts] == ["capped", "budget"]
    assert capped(None, Fact("capped", CAPPED | {"is_seen": True})).confidence == "high"
    assert capped(None, TOLD).rates == {"F": None, "G": None, "H": None, "L": 2000.0}


@pytest.mark.parametrize(
    "found",
    [
        attributed("fed"),
        attributed("h2d_copy"),
        attributed("contention"),
        attributed("fd_limit"),
        attributed("balanced", {"marginal": {"au": 0.9}}),
        attributed("inconclusive", {"status": {"status": "hang", "message": "x"}}, "inconclusive"),
    ],
    ids=lambda found: str(found.verdict),
)
def test_a_loader_that_is_not_the_limit_is_left_as_it_was_told(found: Attribution) -> None:
    assert capped(found, TOLD) is found


def test_where_others_fill_shared_memory_more_is_asked_for_than_there_is() -> None:
    situation = replace(PHOTOS, machine={"shm": {"size_bytes": 2**30, "free_bytes": 10 * 2**20}})
    remedies = in_words(capped(None, TOLD), 0, situation)["remedies"]
    assert [one["options"] for one in remedies[:2]] == ["docker run --shm-size=2g", "emptyDir: {medium: Memory, sizeLimit: 2Gi}"]


def test_the_remedies_make_room_and_take_no_worker_away() -> None:
    remedies = in_words(capped(None, TOLD), 0, PHOTOS)["remedies"]
    assert [(one["name"], one["options"]) for one in remedies] == [
        ("shm_size", "docker run --shm-size=256m"),
        ("empty_dir", "emptyDir: {medium: Memory, sizeLimit: 256Mi}"),
        ("prefetch_factor", "--num-workers 8 --prefetch-factor 1"),
        ("batch_size", "--batch-size 32"),
    ]
