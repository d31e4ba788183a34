"""Stops processes that share a cache from making a file twice, reading half of one, or waiting for the dead."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it")

from cache_workers import fork_while_making, make_until_told, making, noted, text, use, use_many, use_when_told, wait_for
from watching import wait_until

from shardtools.loaders._cache import ShardCache
from shardtools.loaders._cache_names import file_name

pytestmark = pytest.mark.train

Start = Callable[..., BaseProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process; all of them are gone when the test is over."""
    started: list[BaseProcess] = []

    def call(target: Callable[..., None], *arguments: Any, method: str = "fork") -> BaseProcess:
        process: BaseProcess = multiprocessing.get_context(method).Process(target=target, args=arguments)  # type: ignore[attr-defined]
        process.start()
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.join()
        process.close()


@pytest.fixture
def cache(tmp_path: Path) -> ShardCache:
    return ShardCache(str(tmp_path / "cache"), 1 << 20)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def names(cache: ShardCache) -> list[str]:
    assert cache.folder is not None
    return sorted(os.listdir(cache.folder))


def name(key: str, suffix: str = ".shard") -> str:
    return file_name(key).removesuffix(".shard") + suffix


def ends(process: BaseProcess) -> None:
    # Not join: it would also wait for whom the process has forked.
    wait_until(lambda: process.exitcode is not None)
    assert process.exitcode == 0


def is_waiting_for_a_lock(process: BaseProcess) -> bool:
    """Source: proc_locks(5): a process that waits has a line with an arrow."""
    return any(" -> " in line and f" {process.pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_forked_and_spawned_ones_that_ask_at_once_make_a_file_once(cache, log, tmp_path, start):
    told = tmp_path / "told"
    processes = [start(use_when_told, cache, "a", log, told, method=method) for method in ["spawn"] + ["fork"] * 5]
    wait_for(log, "ready", 6)
    told.touch()
    for process in processes:
        ends(process)
    assert sorted(noted(log)) == ["begin a", "end a"] + ["ready"] * 6 + ["used a whole=True left=0 locked=False"] * 6
    assert names(cache) == [name("a")]


def test_nobody_waits_for_the_maker_of_another_file(cache, log, start):
    """Also where the digests begin alike."""
    first = name("a")[:2]
    alike = next(key for key in map(str, range(10_000)) if name(key)[:2] == first)
    start(use, cache, "a", log, 60)
    wait_for(log, "begin a")
    other = start(use, cache, alike, log)
    ends(other)
    assert noted(log)[-1] == f"used {alike} whole=True left=0 locked=False"


def test_whoever_waits_for_one_that_is_killed_makes_the_file(cache, log, start):
    maker = start(use, cache, "a", log, 60)
    wait_for(log, "begin a")
    waiting = [start(use, cache, "a", log) for _ in range(3)]
    wait_until(lambda: all(is_waiting_for_a_lock(process) for process in waiting))
    (part,) = (entry for entry in names(cache) if entry.endswith(".part"))
    maker.kill()
    for process in waiting:
        ends(process)
    assert noted(log) == ["begin a", "begin a", "end a"] + ["used a whole=True left=0 locked=False"] * 3
    # Those who waited may have held its lock when the first looked for what is left: then the next insertion removes it.
    cache.open("b", making("b", log)).close()
    assert part.startswith(name("a", "")) and names(cache) == sorted([name("a"), name("b")])


def test_the_part_of_a_live_maker_counts_and_stays(log, tmp_path, start):
    sizes = {key: len(text(key)) for key in "abcd"}
    half = sizes["a"] // 2
    cache = ShardCache(str(tmp_path / "cache"), half + sizes["c"] + sizes["d"])
    others = [(key, making(key, log)) for key in "bcd"]
    told = tmp_path / "told"
    maker = start(make_until_told, cache, "a", log, told)
    wait_for(log, "begin a")
    for key, make in others:
        cache.open(key, make).close()
        time.sleep(0.02)
    assert [entry for entry in names(cache) if entry.endswith(".shard")] == sorted([name("c"), name("d")])
    assert sum(entry.endswith(".part") for entry in names(cache)) == 1
    told.touch()
    ends(maker)
    assert Path(tmp_path / "cache" / name("a")).read_bytes() == text("a")
    # It was made last and is over the limit with the others.
    assert name("a") in names(cache) and name("c") not in names(cache)


def test_a_process_forked_while_a_thread_makes_keeps_nobody_waiting(cache, log, start):
    maker = start(fork_while_making, cache, "a", log)
    wait_for(log, "begin a")
    waiting = start(use, cache, "a", log)
    wait_until(lambda: is_waiting_for_a_lock(waiting) or not waiting.is_alive())
    ends(maker)
    (child,) = (int(line.split()[1]) for line in noted(log) if line.startswith("child "))
    try:
        ends(waiting)
    finally:
        os.kill(child, signal.SIGKILL)
    assert noted(log).count("begin a") == 1


def num_amid(log: Path) -> int:
    """How many files were begun and not ended."""
    lines = noted(log)
    return sum(line.startswith("begin") for line in lines) - sum(line.startswith("end") for line in lines)


def stress(folder: Path, log: Path, start: Start, num_kills: int) -> None:
    """Four processes of three limits, one of them killed every few milliseconds, until so many were killed amid the making of a file."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    numbers = random.Random(seed)
    caches = [ShardCache(str(folder), limit) for limit in (1, 60_000, 100_000, 100_000)]

    def begin(i: int) -> BaseProcess:
        return start(use_many, caches[i], numbers.randrange(1 << 32), log)

    processes = [begin(i) for i in range(4)]
    deadline = time.monotonic() + 300
    while num_amid(log) < num_kills + len(processes):  # those that are alive may be amid it, too
        assert time.monotonic() < deadline
        time.sleep(numbers.choice([0.002, 0.01, 0.03]))
        i = numbers.randrange(4)
        assert processes[i].exitcode is None  # a fault would have ended it
        processes[i].kill()
        processes[i].join()
        processes[i] = begin(i)
    for process in processes:
        process.kill()
        process.join()
    whole = {name(key): text(key) for key in (f"k{i}" for i in range(12))}
    for entry in folder.glob("*.shard"):
        assert entry.read_bytes() == whole[entry.name]
    with caches[1].open("last", making("last", log)) as file:
        assert file.read() == text("last")
    assert name("last") in os.listdir(folder) and all(entry.endswith(".shard") for entry in os.listdir(folder))
    assert sum(entry.stat().st_size for entry in folder.iterdir()) <= 60_000
    assert [line for line in noted(log) if line.startswith("half")] == []


def test_kills_leave_whole_files_and_what_the_next_insertion_removes(log, tmp_path, start):
    stress(tmp_path / "cache", log, start, 20)


@pytest.mark.slow
def test_many_kills_leave_whole_files_and_what_the_next_insertion_removes(log, tmp_path, start):
    stress(tmp_path / "cache", log, start, 600)
