"""The watch sees peaks, follows the tree, and ends: stops a peak of zero, a thread that stays, and a silent failure."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from watching import wait_until

from shardtools.bench.counters import host
from shardtools.bench.counters.device import Roots, device_under
from shardtools.bench.counters.sampler import Pace, Sampler
from shardtools.bench.counters.tree import ProcessTree
from shardtools.bench.not_measured import Reasons
from shardtools.bench.page_cache import PageCache

PACE = Pace(fast_s=0.002, slow_s=0.02, pss_s=0.05)
PLANT_BYTES = 48 * 2**20


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Python that runs ``code`` whenever it is sent a line, says so, and ends when its input does."""
    program = f"import sys, os, time, mmap\nkept = []\nfor _ in sys.stdin:\n    {code}\n    print('done', flush=True)\n"
    running = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def act(running: subprocess.Popen[bytes]) -> None:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(b"\n")
    running.stdin.flush()
    assert running.stdout.readline() == b"done\n"


def watched(code: str, uri: str = "/", roots: Roots | None = None) -> dict[str, Any]:
    """One act of a child, and what a watch from before to after it returns."""
    with child(code) as running:
        sampler = Sampler(running.pid, uri, PACE, roots)
        sampler.start()
        try:
            act(running)
            time.sleep(0.1)
        finally:
            found = sampler.stop()
    return found


def test_the_peak_of_descriptors_is_seen_after_they_are_closed() -> None:
    code = "kept += [os.open('/dev/null', 0) for _ in range(300)]; time.sleep(0.6); [os.close(fd) for fd in kept]"
    peak = watched(code)["peaks"]["fd"]
    assert 303 <= peak < 320


def test_the_peak_of_shared_memory_is_seen_though_its_file_has_no_name() -> None:
    """As torch does: the object is unlinked at once and given back while nobody looks."""
    path = f"/dev/shm/shardtools-test-{os.getpid()}"
    code = f"fd = os.open('{path}', os.O_RDWR | os.O_CREAT); os.unlink('{path}'); os.posix_fallocate(fd, 0, {PLANT_BYTES}); "
    code += "time.sleep(0.6); os.close(fd)"
    before = host.shared_memory()
    if before.free_bytes < 4 * PLANT_BYTES:
        pytest.skip("/dev/shm is too small for the plant")
    assert watched(code)["peaks"]["shm"] >= PLANT_BYTES / 2, "others may give some back meanwhile"


@pytest.mark.train
def test_the_peak_of_shared_memory_sees_a_tensor() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it")
    sampler = Sampler(os.getpid(), "/", PACE)
    sampler.start()
    tensor = torch.ones(PLANT_BYTES, dtype=torch.uint8).share_memory_()
    time.sleep(0.1)
    del tensor
    assert sampler.stop()["peaks"]["shm"] >= PLANT_BYTES / 2


def test_memory_and_time_of_the_child_are_seen() -> None:
    found = watched("kept.append(bytearray(b'x') * 60_000_000); end = time.process_time() + 0.3\n    while time.process_time() < end: pass")
    assert found["peaks"]["rss"] >= 60_000_000
    assert found["peaks"]["pss"] >= 60_000_000
    assert found["counters"]["cpu_util"] * found["wall_s"] >= 0.25


def test_bytes_from_the_disk_are_seen_on_the_device_and_in_the_process(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(12_000_000))
    device = Reasons().attempt("device", lambda: device_under(str(path), Roots()))
    if device is None or PageCache([str(path)]).evict().share != 0:
        pytest.skip("temporary files are on no disk, or cannot be evicted")
    counters = watched(f"open({str(path)!r}, 'rb').read()", str(path))["counters"]
    assert counters["read_bytes"] >= 12_000_000
    assert counters["disk_read_bytes"] >= 12_000_000
    assert counters["disk_iops"] > 0
    assert counters["cache_hit"] is None or counters["cache_hit"] < 0.5


def test_an_interval_within_the_watch() -> None:
    """Bytes read before the interval do not count in it."""
    with child("kept.append(open('/dev/zero', 'rb').read(50_000_000)); kept.clear()") as running:
        sampler = Sampler(running.pid, "/", PACE)
        sampler.start()
        act(running)
        time.sleep(0.1)
        begin = time.perf_counter()
        time.sleep(0.2)
        end = time.perf_counter()
        act(running)
        whole = sampler.stop()
    part = sampler.between(begin, end)
    assert whole["counters"]["rchar"] >= 100_000_000
    assert part["counters"]["rchar"] < 1_000_000
    assert part["wall_s"] == pytest.approx(end - begin)
    assert part["peaks"] == whole["peaks"]


def test_every_none_has_a_reason_and_every_reason_a_none() -> None:
    found = watched("pass")
    values = found["counters"] | found["peaks"] | {f"gpu{gpu['index']}_util_pct": gpu["util_pct"] for gpu in found["gpus"]}
    missing = {entry["metric"]: entry["reason"] for entry in found["not_measured"]}
    assert {name for name, value in values.items() if value is None} == missing.keys()
    assert all(missing.values())


def test_a_system_without_proc_yields_nones(tmp_path: Path) -> None:
    found = watched("pass", "s3://bucket/data", Roots(str(tmp_path / "proc"), str(tmp_path / "sys")))
    assert set(found["counters"].values()) == {None}
    assert (found["peaks"]["rss"], found["peaks"]["pss"], found["peaks"]["fd"]) == (None, None, None)
    reasons = {entry["metric"]: entry["reason"] for entry in found["not_measured"]}
    assert reasons["disk_iops"] == "the data is not on this machine"
    assert found["counters"].keys() <= reasons.keys()


def test_a_process_that_ends_under_the_watch_keeps_its_numbers() -> None:
    with child("pass") as running:
        act(running)  # a process between fork and exec has no pages of its own yet
        sampler = Sampler(running.pid, "/", PACE)
        sampler.start()
        running.kill()
        running.wait()
        time.sleep(0.1)
        assert sampler.stop()["peaks"]["rss"] > 1_000_000


def test_the_cost_of_watching_is_told_and_the_thread_is_gone() -> None:
    before = threading.active_count()
    overhead = watched("time.sleep(0.3)")["overhead"]
    assert 0 < overhead["cpu_s"] < 1
    assert overhead["cpu_util"] == pytest.approx(overhead["cpu_s"] / 0.5, rel=0.9)
    assert overhead["looks_per_s"] > 5
    assert overhead["longest_gap_ms"] > 0
    assert threading.active_count() == before


def test_a_fault_of_the_watch_is_raised_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler(os.getpid(), "/", PACE)
    sampler.start()
    monkeypatch.setattr(ProcessTree, "most_open_files", lambda _: 1 / 0)
    wait_until(lambda: not sampler._thread.is_alive())
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError):
        sampler.stop()


@pytest.mark.parametrize(("uuid", "value"), [(None, None), ("GPU-b", 20.0), ("b", 20.0), ("GPU-c", None)])
def test_of_several_accelerators_the_one_in_use_is_named(uuid: str | None, value: float | None) -> None:
    sampler, reasons = Sampler(os.getpid(), "/"), Reasons()
    gpus = [{"index": 0, "uuid": "GPU-a", "util_pct": 10.0}, {"index": 1, "uuid": "GPU-b", "util_pct": 20.0}]
    assert sampler._util(gpus, uuid, reasons) == value
    assert (reasons.of("gpu_util_nvml") is None) == (value is not None)
