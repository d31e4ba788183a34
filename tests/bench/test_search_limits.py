"""What lies beyond a recommended setting; stops one axis that is told by a failure along another, a knee on a curve that still rises, and
two bases of one percentage."""

from collections.abc import Callable
from typing import Any

import pytest
from search_worlds import record_of

from shardtools.bench.prediction import Batch, Limits, Prediction, Probe, predict, refusal
from shardtools.bench.report.edge import is_rising_at
from shardtools.bench.search import Cell, Goal, Outcome, Space, find
from shardtools.bench.search.advice import Advice
from shardtools.bench.search.limits import limits_of
from shardtools.bench.search.recommendation import recommend
from shardtools.bench.spec import Layout, Settings, TrialSpec, Workload

MIB = 1 << 20
ROOMY = Limits(1 << 40, 1 << 20, 1 << 44)
SMALL = Limits(64 * MIB, 1 << 20, 1 << 44)
"""Of which 51.2 MiB are safe."""
PROBE = Probe(Batch(4 * MIB, 1, 4 * MIB, 4 * MIB, 32), 50 * MIB, 200 * MIB, 0)


def rising(cell: Cell) -> float:
    return 100.0 * max(1, cell.num_workers)


def flat(cell: Cell) -> float:
    return 100.0 * max(1, min(2, cell.num_workers))


def advised(rate: Callable[[Cell], float], limits: Limits, max_workers: int = 4) -> Advice:
    """A search over two processors, and what advice about it is made of."""

    def settings_of(cell: Cell) -> Settings:
        return Settings(cell.num_workers, cell.prefetch_factor, persistent_workers=cell.persistent_workers)

    def foreseen(cell: Cell) -> Prediction:
        return predict(PROBE, settings_of(cell), "blocking")

    def run(cell: Cell) -> Outcome:
        refused = refusal(foreseen(cell), limits)
        return Outcome("refused", message=refused, is_trial=False) if refused else Outcome("ok", rate(cell), epoch2_s=0.1)

    space = Space(max_workers, f"2 x {max_workers // 2} processors", max_workers // 2)
    found = find(record_of(run), space, Goal(Cell(2, 2), num_samples=2000))
    base = TrialSpec(Layout("photos", "files", "torch"), Workload(batch_size=32), Settings(2, 2))
    return Advice(found, space, base, settings_of, foreseen, lambda: limits, [])


def told(advice: Advice, language: str = "en") -> list[str]:
    cell = advice.found.recommended
    assert cell is not None
    return [words[language] for words in limits_of(advice, cell)]


def test_a_queue_that_was_refused_is_not_told_of_workers() -> None:
    advice = advised(rising, SMALL)
    assert advice.found.recommended == Cell(4, 2)
    assert told(advice) == [
        "Workers beyond 4 were not tried (limit: 2 x 2 processors).",
        "A longer queue was refused: prefetch_factor=4 needs 72.0 MiB of /dev/shm, 51.2 MiB is safe.",
    ]
    assert told(advice, "zh") == [
        "没有试过多于 4 个 worker（上限：2 x 2 个处理器）。",
        "更长的队列被拒绝：prefetch_factor=4 需要 72.0 MiB 的 /dev/shm，安全用量为 51.2 MiB。",
    ]


def test_workers_that_were_refused_are_told_of_workers() -> None:
    first = told(advised(rising, SMALL, max_workers=16))[0]
    assert first.startswith("More workers may be faster, but num_workers=")
    assert "ended as refused: not run: shm " in first


def test_a_queue_that_was_refused_with_more_workers_is_not_told_of_workers_either() -> None:
    """So many workers were measured, with a shorter queue."""
    advice = advised(flat, SMALL)
    advice.found.stopped, advice.found.recommended = "limit: 2 x 2 processors", Cell(2, 2)
    advice.found.record.outcomes[Cell(4, 4)] = [Outcome("refused", message="not run", is_trial=False)]
    assert Cell(4, 2) in advice.found.record.known()
    assert not any("orkers" in line for line in told(advice))


def test_what_was_measured_along_an_axis_is_not_called_untried() -> None:
    assert not any("Workers beyond" in line for line in told(advised(flat, ROOMY, max_workers=16)))
    assert not any("longer queue" in line for line in told(advised(rising, ROOMY)))


def test_the_last_point_of_a_curve_that_still_rises_is_no_knee() -> None:
    """The first of the lines that say why."""

    def first(advice: Advice) -> Any:
        found = recommend(advice)
        assert found is not None
        return found["why"][0]

    rose, ended = first(advised(rising, ROOMY)), first(advised(flat, ROOMY, max_workers=16))
    assert "at the edge of the search; still rising." in rose["en"] and "位于搜索边界，仍在上升" in rose["zh"]
    assert "95 %" not in rose["en"]
    assert "with the fewest workers that reach 95 % of it" in ended["en"]


@pytest.mark.parametrize(
    ("num_workers", "points", "expected"),
    [
        (4, [(0, 160.0), (2, 271.0), (4, 705.0)], True),
        (4, [(4, 705.0), (0, 160.0), (2, 700.0)], False),
        (2, [(0, 160.0), (2, 271.0), (4, 273.0)], False),
        (4, [(4, 705.0)], False),
    ],
)
def test_a_curve_rises_at_its_end_alone(num_workers: int, points: list[tuple[int, float]], expected: bool) -> None:
    assert is_rising_at(num_workers, points) == expected
