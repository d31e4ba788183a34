"""Workers that cannot all be started leave none behind and one sentence; an engine is a value that runs leave as it was."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from live_engines import _workers_find_tasks, every_engine  # noqa: F401 - a fixture for every test

import shardtools
from shardtools.engines import Progress, Report, num_cores
from shardtools.engines.processes import Processes
from shardtools.errors import ShardtoolsError


def double(item: int, report: Report) -> int:
    report(Progress(1, item, 0))
    return 2 * item


SCRIPT = """
import resource, sys
from multiprocessing import active_children
from shardtools.engines.processes import Processes
from shardtools.errors import ShardtoolsError

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    try:
        Processes(64).__enter__()
    except ShardtoolsError as error:
        print(error)
    print(len(active_children()))
    with Processes(2) as crew:
        print("still", crew._num_workers)
"""


def test_more_workers_than_open_files_allow_is_one_sentence(tmp_path):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 40
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    said, left, still = done.stdout.splitlines()
    assert said.startswith("expected to start 64 worker processes, but after ") and "Too many open files; use fewer --workers" in said
    assert (left, still) == ("0", "still 2")


@pytest.mark.parametrize("fault", [BlockingIOError(11, "Resource temporarily unavailable"), KeyboardInterrupt(), ValueError("other")])
def test_workers_that_were_started_are_ended(monkeypatch, fault):
    from multiprocessing.context import SpawnProcess

    real, started = SpawnProcess.start, []

    def start(self: Any) -> None:
        if len(started) == 2:
            raise fault
        real(self)
        started.append(self)

    monkeypatch.setattr(SpawnProcess, "start", start)
    with pytest.raises(ShardtoolsError if isinstance(fault, OSError) else type(fault)) as caught:
        Processes(5).__enter__()
    assert [process.is_alive() for process in started] == [False, False]
    if isinstance(fault, OSError):
        assert "start 5 worker processes, but after 2 the system said: Resource temporarily unavailable" in str(caught.value)


def test_an_interrupt_that_another_thread_takes_waits_until_all_are_started(monkeypatch):
    """The mask that holds it is one thread's; half-started workers would end in tracebacks of their own."""
    from multiprocessing.context import SpawnProcess

    real, started, over = SpawnProcess.start, [], threading.Event()
    taker = threading.Thread(target=over.wait)
    taker.start()

    def start(self: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        real(self)
        started.append(self)

    monkeypatch.setattr(SpawnProcess, "start", start)
    try:
        with pytest.raises(KeyboardInterrupt):
            Processes(2).__enter__()
    finally:
        over.set()
        taker.join()
    assert [process.is_alive() for process in started] == [False, False]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_system_that_cannot_tell_which_cores_are_ours_gives_all(monkeypatch):
    assert num_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert num_cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert num_cores() == 1


def test_an_engine_is_a_value():
    engine = Processes(2)
    with pytest.raises(FrozenInstanceError):
        engine.workers = 3  # type: ignore[misc]
    with engine as crew:
        assert engine == Processes(2) and hash(engine) == hash(Processes(2))
        results: list[int] = []
        crew.run(double, [1, 2, 3], lambda _: None, results.append)
        assert sorted(results) == [2, 4, 6]
    assert engine == Processes(2) and repr(engine) == "Processes(workers=2)"


@pytest.mark.parametrize("engine", every_engine(workers=2))
def test_an_engine_that_was_not_entered_runs_all_the_same(engine):
    results: list[int] = []
    engine.run(double, [1, 2, 3], lambda _: None, results.append)
    assert sorted(results) == [2, 4, 6]
