"""What tasks return reaches the caller once an item, on every engine; stops results that get lost, doubled or mixed up."""

from typing import Any

import pytest
from live_engines import _workers_find_tasks, every_engine  # noqa: F401 - a fixture for every test

from shardtools.engines import Progress, Report
from shardtools.errors import BadSampleError, DamagedShardError, ShardtoolsError


def square(item: int, report: Report) -> int:
    report(Progress(1, item, 0))
    return item * item


def nothing(item: int, report: Report) -> None:
    report(Progress(1, item, 0))


def fail(item: int, _: Report) -> None:
    if item == 7:
        raise BadSampleError("expected seven of them, got one")
    if item == 8:
        raise DamagedShardError("expected a magic, got none", 512)
    if item == 9:
        raise ZeroDivisionError("planted")


@pytest.mark.parametrize("engine", every_engine(workers=3))
def test_every_result_comes_once_and_one_engine_runs_several_tasks(engine: Any) -> None:
    with engine as live:
        for count in (50, 0, 2):
            results: list[int] = []
            reported: list[Progress] = []
            live.run(square, range(count), reported.append, results.append)
            assert sorted(results) == [i * i for i in range(count)]
            assert sum(progress.num_bytes for progress in reported) == sum(range(count))
        results = []
        live.run(nothing, range(4), lambda _: None, results.append)
        assert results == [None] * 4
        live.run(square, range(4), lambda _: None)
        refuses_and_goes_on(live)


def refuses_and_goes_on(live: Any) -> None:
    """What a task raises comes out as it is; a fault of the program with its own traceback."""
    for item, kind, says in [(7, BadSampleError, "expected seven of them"), (8, DamagedShardError, "got none"), (9, Exception, "planted")]:
        with pytest.raises(kind, match=says) as caught:
            live.run(fail, [item], lambda _: None)
        assert isinstance(caught.value, ShardtoolsError) == (item != 9)
    assert caught.type is ZeroDivisionError or "ZeroDivisionError: planted" in str(caught.value)
    live.run(fail, [1, 2], lambda _: None)
