"""A process tree's use is counted once, whoever dies in between: stops CPU time that doubles when a worker is waited for, or vanishes.

The tree is made of files; a live one is checked against what ``getrusage`` says of the children.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from watching import wait_until

from shardtools.bench import not_measured
from shardtools.bench.counters import process
from shardtools.bench.counters.process import num_open_files
from shardtools.bench.counters.tree import ProcessTree
from shardtools.bench.not_measured import Unknown

TICK = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class FakeProc:
    """Processes as folders of files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, pid: int, parent: int, own: int, waited: int = 0, *, start: int = 1, read: int = 0, children: str | None = "") -> None:
        folder = self.root / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        words = ["S", parent, *[0] * 9, own, 0, waited, 0, *[0] * 4, start, 0, 10]
        (folder / "stat").write_text(f"{pid} (p q) {' '.join(map(str, words))}\n")
        (folder / "io").write_text(f"rchar: {10 * read}\nread_bytes: {read}\n")
        (folder / "task" / str(pid) / "stat").write_text("")
        if children is not None:
            (folder / "task" / str(pid) / "children").write_text(children)

    def end(self, pid: int) -> None:
        (self.root / str(pid)).rename(self.root / f"gone-{pid}-{time.monotonic_ns()}")


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def ticks(tree: ProcessTree) -> int:
    return round(tree.usage().cpu_s / TICK)


def test_a_worker_that_is_waited_for_counts_once(proc: FakeProc) -> None:
    proc.put(1, 0, own=10, children="2 3 ", read=1)
    proc.put(2, 1, own=100, read=5)
    proc.put(3, 1, own=200, read=7)
    tree = ProcessTree(1, str(proc.root))
    assert ticks(tree) == 310
    usage = tree.usage()
    assert (usage.rchar, usage.read_bytes, usage.num_processes) == (130, 13, 3)
    assert usage.rss_bytes == 3 * 10 * PAGE_BYTES
    proc.end(2)
    proc.put(1, 0, own=11, waited=105, children="3 ", read=1 + 6)
    assert ticks(tree) == 11 + 105 + 200
    assert tree.usage().read_bytes == 7 + 7


def test_a_worker_that_is_waited_for_during_the_look_counts_once(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent was read before, when it did not hold the worker's time yet."""
    proc.put(1, 0, own=10, children="2 ")
    proc.put(2, 1, own=100)
    tree = ProcessTree(1, str(proc.root))
    assert ticks(tree) == 110

    def read_text(path: str) -> str:
        if path.endswith("/2/stat") and (proc.root / "2").exists():
            proc.end(2)
            proc.put(1, 0, own=10, waited=103)
        return not_measured.read_text(path)

    monkeypatch.setattr("shardtools.bench.counters.tree.read_text", read_text)
    assert ticks(tree) == 113


def test_a_grandchild_whose_parents_were_waited_for_counts_once(proc: FakeProc) -> None:
    proc.put(1, 0, own=10, children="2 ")
    proc.put(2, 1, own=20, children="3 ")
    proc.put(3, 2, own=40)
    tree = ProcessTree(1, str(proc.root))
    assert ticks(tree) == 70
    proc.end(3)
    proc.end(2)
    proc.put(1, 0, own=10, waited=60)
    assert ticks(tree) == 70


def test_a_tree_that_ended_as_a_whole_keeps_what_was_seen_last(proc: FakeProc) -> None:
    proc.put(1, 0, own=10, children="2 ", read=3)
    proc.put(2, 1, own=20, read=4)
    tree = ProcessTree(1, str(proc.root))
    assert ticks(tree) == 30
    proc.end(2)
    proc.end(1)
    assert ticks(tree) == 30
    assert ticks(tree) == 30
    assert (tree.usage().read_bytes, tree.usage().num_processes) == (7, 0)


def test_an_orphan_is_followed_and_kept(proc: FakeProc) -> None:
    proc.put(1, 0, own=10, children="2 ")
    proc.put(2, 1, own=20, children="3 ")
    proc.put(3, 2, own=40)
    tree = ProcessTree(1, str(proc.root))
    assert ticks(tree) == 70
    proc.end(2)
    proc.put(1, 0, own=10, waited=20)
    proc.put(3, 999, own=50)
    assert ticks(tree) == 10 + 20 + 50
    proc.end(3)
    assert ticks(tree) == 10 + 20 + 50, "nobody here waited for it"


def test_another_process_with_the_same_id_is_not_taken_for_it(proc: FakeProc) -> None:
    proc.put(1, 0, own=10, children="2 ")
    proc.put(2, 1, own=20)
    tree = ProcessTree(1, str(proc.root))
    assert ticks(tree) == 30
    proc.put(1, 0, own=10, waited=20)
    proc.put(2, 999, own=7000, start=5)
    assert ticks(tree) == 30
    assert tree.pids == [1]


def test_a_kernel_that_lists_no_children_is_scanned(proc: FakeProc) -> None:
    proc.put(1, 0, own=10, children=None)
    proc.put(2, 1, own=20, children=None)
    proc.put(3, 2, own=40, children=None)
    proc.put(4, 0, own=80, children=None)
    assert ticks(ProcessTree(1, str(proc.root))) == 70


def test_a_process_whose_io_cannot_be_read_still_has_cpu_time(proc: FakeProc) -> None:
    proc.put(1, 0, own=10)
    (proc.root / "1" / "io").unlink()
    usage = ProcessTree(1, str(proc.root)).usage()
    assert (usage.rchar, usage.read_bytes) == (None, None)
    assert "io is not there" in usage.io_reason
    assert round(usage.cpu_s / TICK) == 10


def test_a_process_that_was_never_there(proc: FakeProc) -> None:
    with pytest.raises(Unknown, match="has ended before"):
        ProcessTree(1, str(proc.root)).usage()
    with pytest.raises(Unknown, match="has ended"):
        ProcessTree(1, str(proc.root)).most_open_files()


def test_memory_of_the_tree_in_shares(proc: FakeProc) -> None:
    proc.put(1, 0, own=1, children="2 ")
    proc.put(2, 1, own=1)
    for pid, kilobytes in ((1, 30), (2, 12)):
        (proc.root / str(pid) / "smaps_rollup").write_text(f"Rss: 99 kB\nPss:  {kilobytes} kB\n")
    tree = ProcessTree(1, str(proc.root))
    tree.usage()
    assert tree.pss_bytes() == 42 * 1024
    (proc.root / "2" / "smaps_rollup").unlink()
    with pytest.raises(Unknown):
        tree.pss_bytes()
    proc.end(2)
    assert tree.pss_bytes() == 30 * 1024


def test_open_files_of_this_process() -> None:
    before = num_open_files("/proc", os.getpid())
    assert before == pytest.approx(len(os.listdir("/proc/self/fd")), abs=1), "the list holds the descriptor it is read by"
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
    try:
        assert num_open_files("/proc", os.getpid()) == pytest.approx(before + 50, abs=5), "other threads may open some and close others"
    finally:
        for fd in fds:
            os.close(fd)


SPAWN = """
import os, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
def read():
    with open(sys.argv[1], "rb") as file: file.read()
for _ in range(2):
    if os.fork() == 0:
        if os.fork() == 0:
            burn(0.15); read(); os._exit(0)
        os.wait(); burn(0.1); os._exit(0)
os.wait(); os.wait()
burn(0.1)
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    data = tmp_path / "data"
    data.write_bytes(bytes(3_000_000))
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen([sys.executable, "-c", SPAWN, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return running[-1]

    yield start
    for child in running:
        child.send_signal(signal.SIGKILL)
        child.communicate()


def test_a_live_tree_used_what_the_system_says_it_used(started: Callable[[], subprocess.Popen[bytes]]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = started()
    tree = ProcessTree(child.pid)
    most = 0
    while not most or len(tree.pids) > 1 or tree.usage().cpu_s < 0.55:
        most = max(most, tree.usage().num_processes)
        time.sleep(0.01)
    assert child.stdout is not None
    assert child.stdout.readline() == b"done\n"
    seen = tree.usage()
    child.communicate(b"")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert most >= 3
    assert seen.cpu_s == pytest.approx(used, abs=0.1)
    assert seen.rchar is not None
    assert 6_000_000 <= seen.rchar < 9_000_000, "two grandchildren read the file, and were waited for"


def test_threads_children_are_found() -> None:
    code = "import subprocess, sys, threading\nt = threading.Thread(target=lambda: subprocess.run(['sleep', '30']))\nt.start()\n"
    child = subprocess.Popen([sys.executable, "-c", code], process_group=0)
    try:
        wait_until(lambda: process.children("/proc", child.pid))
        assert len(process.children("/proc", child.pid)) == 1
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
