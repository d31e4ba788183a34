"""What tasks return reaches the caller once an item, on every engine; stops results that get lost, doubled or mixed up."""

from typing import Any

import pytest

from shardtools.engines import Progress, Report
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial


def square(item: int, report: Report) -> int:
    report(Progress(1, item, 0))
    return item * item


def nothing(item: int, report: Report) -> None:
    report(Progress(1, item, 0))


@pytest.mark.parametrize("engine", [Serial(), Processes(3)], ids=["serial", "processes"])
def test_every_result_comes_once_and_one_engine_runs_several_tasks(engine: Any) -> None:
    with engine:
        for count in (50, 0, 2):
            results: list[int] = []
            reported: list[Progress] = []
            engine.run(square, range(count), reported.append, results.append)
            assert sorted(results) == [i * i for i in range(count)]
            assert sum(progress.num_bytes for progress in reported) == sum(range(count))
        results = []
        engine.run(nothing, range(4), lambda _: None, results.append)
        assert results == [None] * 4
        engine.run(square, range(4), lambda _: None)
