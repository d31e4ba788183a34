"""Trials in real processes, each ended by what it does wrong; stops a bench that hangs, misnames a failure, or leaves anything behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest
from watching import processes_with, wait_until

from shardtools.bench.processes.folders import private_folder
from shardtools.bench.spec import Consumer, DeviceName, Layout, Mode, Settings, TrialSpec, Workload
from shardtools.bench.trial import TrialResult, run_trial
from shardtools.bench.trial._words import is_lost

pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

pytestmark = [pytest.mark.train, pytest.mark.skipif(sys.platform != "linux", reason="what is left of a trial is told from /proc")]

HERE = Path(__file__).parent
NO_WORKERS, WORKERS = Settings(num_workers=0), Settings(num_workers=2)


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The faults can be imported in a trial. After every test: no process of it, no folder, no shared memory."""
    tmp_path_factory.getbasetemp()  # pytest's own is made before
    before = own_shared_memory()
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    with tempfile.TemporaryDirectory(prefix="trial-test-", dir="/tmp") as folder:  # short: see ``private_folder``
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        wait_until(lambda: not processes_with(folder, "environ"), 10)
        assert os.listdir(folder) == []
        assert own_shared_memory() <= before


@pytest.fixture
def data(tmp_path: Path) -> str:
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(64):
        (folder / f"{i:03d}.bin").write_bytes(bytes([i]) * 100)
    return str(folder)


def own_shared_memory() -> set[str]:
    """Other processes of this machine come and go; what a trial of these tests makes has a name of its own."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("shardtools_test_")}


def spec(data: str, fault: str, settings: Settings = NO_WORKERS, timeout_seconds: float = 60.0, is_forced: bool = True) -> TrialSpec:
    workload = Workload(batch_size=4, decode=f"trial_faults:{fault}")
    layout = Layout(data, "files", "torch")
    return TrialSpec(
        layout, workload, settings, cache="warm", min_seconds=0.3, min_steps=10, timeout_seconds=timeout_seconds, is_forced=is_forced
    )


@pytest.mark.slow
def test_a_trial_measures(data: str) -> None:
    asked = spec(data, "sound", WORKERS)
    prepared: list[float] = []
    result = run_trial(asked, lambda: prepared.append(time.perf_counter()))
    assert (result.status, result.message, result.leftovers) == ("ok", "", []), result.said
    assert len(prepared) == 1
    window = result.found["window"]
    assert window["steps"] % 2 == 0
    assert window["samples"] == window["steps"] * 4
    assert window["warm_steps"] >= 8
    assert result.throughput == pytest.approx(window["steady_samples"] / window["steady_s"])
    assert result.found["start_method"] in ("fork", "forkserver", "spawn")
    startup = result.found["startup"]
    assert all(startup[name] > 0 for name in ("iter_s", "first_batch_s", "epoch2_s", "teardown_s"))
    assert result.watched["counters"]["cpu_util"] > 0
    assert result.watched["affinity_cpus"] == len(os.sched_getaffinity(0))
    assert result.watched["wall_s"] == pytest.approx(window["wall_s"], rel=0.05)
    assert json.loads(json.dumps(result.as_json()))["spec"]["settings"]["num_workers"] == 2


def test_a_folder_too_deep_for_sockets_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with private_folder() as folder:
        assert (Path(folder).parent, os.listdir(deep)) == (Path("/tmp"), [])
    assert not os.path.exists(folder)


def test_a_hang_is_ended_in_time(data: str) -> None:
    began = time.monotonic()
    result = run_trial(spec(data, "hang_for_good", timeout_seconds=1.0), is_watched=False)
    assert (result.status, result.throughput) == ("hang", None)
    assert "within 1 seconds" in result.message
    assert time.monotonic() - began < 60
    assert result.not_measured == [{"metric": "*", "reason": result.message}]


@pytest.mark.slow
def test_what_a_trial_litters_is_removed_and_nothing_else(data: str) -> None:
    foreign = shared_memory.SharedMemory(f"shardtools_foreign_{os.getpid()}", create=True, size=16)
    try:
        result = run_trial(spec(data, "litter"), is_watched=False)
        assert result.status == "ok", result.message
        found = sorted(left.split()[0] if left.startswith("process") else left[:24] for left in result.leftovers)
        assert found == ["/dev/shm/shardtools_test", "process", "process"]
        assert os.path.exists(f"/dev/shm/{foreign.name}")
    finally:
        foreign.close()
        foreign.unlink()


SCRIPT = """
import json, sys, tempfile
from shardtools.bench.spec import spec_of
from shardtools.bench.trial import run_trial
tempfile.tempdir = sys.argv[1]
try:
    run_trial(spec_of(json.loads(sys.argv[2])), lambda: print("prepared", flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_bench_leaves_nothing(data: str, number: signal.Signals) -> None:
    """Killed, it cannot tidy up: then the trial itself does, which notices the end of its pipe."""
    words = json.dumps(spec(data, "litter_and_hang", WORKERS, timeout_seconds=20.0).as_json())
    command = [sys.executable, "-c", SCRIPT, tempfile.gettempdir(), words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "prepared\n"
        wait_until(lambda: any(Path(tempfile.gettempdir()).glob("*/litter")))
        time.sleep(0.2)
        began = time.monotonic()
        bench.send_signal(number)
        assert bench.wait() == (130 if number == signal.SIGINT else -signal.SIGKILL)
        assert time.monotonic() - began < 10
    if number == signal.SIGKILL:
        wait_until(lambda: not processes_with(tempfile.gettempdir(), "environ") and not os.listdir(tempfile.gettempdir()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "settings", "is_forced", "status", "words"),
    [
        ("raises", WORKERS, True, "error", "ValueError: no such picture"),
        ("raises", NO_WORKERS, True, "error", "ValueError: no such picture"),
        ("die", NO_WORKERS, True, "error", "SIGKILL"),
        ("die", WORKERS, True, "error", "Killed"),
        ("bus_error", NO_WORKERS, True, "oom_shm", "SIGBUS"),
        ("bus_error", WORKERS, True, "oom_shm", "bus error"),
        ("many_files", WORKERS, True, "fd", "Too many open files"),
        ("no_such_fault", NO_WORKERS, True, "refused", "--decode"),
        ("sound", Settings(2, prefetch_factor=0), True, "refused", "--prefetch-factor"),
    ],
)
def test_failures_have_their_names(data: str, fault: str, settings: Settings, is_forced: bool, status: str, words: str) -> None:
    result = run_trial(spec(data, fault, settings, is_forced=is_forced), is_watched=False)
    assert (result.status, words in result.message) == (status, True), result.message
    assert result.leftovers == []


@pytest.mark.slow
def test_a_hanging_worker_is_ended_with_its_group(data: str) -> None:
    result = run_trial(spec(data, "hang", WORKERS, timeout_seconds=2.0))
    assert result.status == "hang"


@pytest.mark.slow
def test_cuda_is_never_replaced(data: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    asked = spec(data, "sound")
    asked = TrialSpec(asked.layout, asked.workload, asked.settings, Consumer("sim", step_ms=1, device="cuda"), min_seconds=0.2)
    result = run_trial(asked, is_watched=False)
    assert result.status == "error"
    assert "expected a CUDA device, got none" in result.message


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "device"), [("throughput", "sim"), ("timeline", "sim"), ("timeline", "cpu"), ("isolation", "sim")])
def test_every_null_has_a_reason(data: str, mode: Mode, device: DeviceName) -> None:
    asked = spec(data, "sound", WORKERS)
    asked = TrialSpec(asked.layout, asked.workload, WORKERS, Consumer("sim", step_ms=2, device=device), mode, "warm", 0.3, 10)
    result: TrialResult = run_trial(asked)
    assert result.status == "ok", result.message
    reasons = {entry["metric"] for entry in result.not_measured}
    assert all(entry["reason"] for entry in result.not_measured)
    nulls = {path for path in null_paths(result.found, "") if not path.startswith(("window.", "pinning."))}
    assert {path for path in nulls if path not in reasons and path.removeprefix("steps.") not in reasons} == set()
    has_steps = mode != "throughput"
    assert (result.found["steps"]["data_wait_ms"] is not None) is has_steps
    assert (result.found["stages"] is not None) is (mode == "timeline")
    assert 0 < result.found["au"] < 1.5


def null_paths(value: Any, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from null_paths(inner, f"{path}.{name}" if path else name)


FEEDER = """Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 244, in _feed
    obj = _ForkingPickler.dumps(obj)
RuntimeError: {}
"""


def test_a_batch_that_is_lost_is_told_from_a_warning() -> None:
    full = "unable to allocate shared memory(shm) for file </torch_7_8_9>: No space left on device (28)"
    assert is_lost(FEEDER.format(full))
    assert not is_lost(f"RuntimeError: {full}")
    assert not is_lost(FEEDER.format("cannot pickle") + f"Traceback (most recent call last):\nRuntimeError: {full}")


TINY_SHM = """
import json, os, subprocess, sys, threading, time
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", "/dev/shm"], check=True)
from shardtools.bench.spec import spec_of
from shardtools.bench.trial import run_trial
most, has_ended = [0], threading.Event()
def watch():
    while not has_ended.wait(0.005):
        found = os.statvfs("/dev/shm")
        most[0] = max(most[0], (found.f_blocks - found.f_bfree) * found.f_frsize)
threading.Thread(target=watch, daemon=True).start()
ready = []
result = run_trial(spec_of(json.loads(sys.argv[1])), lambda: ready.append(time.monotonic()))
has_ended.set()
print(json.dumps([result.status, result.message, most[0], time.monotonic() - ready[0], result.found]))
"""


def with_tiny_shared_memory(asked: TrialSpec) -> tuple[str, str, int, float, dict[str, Any]]:
    """Status, message, the most that was used of 16 MB, seconds from the import of torch to the end, and what was found."""
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a mount namespace of one's own needs root")
    command = ["unshare", "-m", sys.executable, "-c", TINY_SHM, json.dumps(asked.as_json())]
    finished = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": tempfile.gettempdir()})
    assert finished.returncode == 0, finished.stderr
    status, message, most, seconds, found = json.loads(finished.stdout)
    return status, message, most, seconds, found


@pytest.mark.slow
@pytest.mark.parametrize(("batch_size", "settings"), [(4, Settings(2, 8)), (64, Settings(1, 1))])
def test_what_does_not_fit_is_refused_before_a_worker_starts(data: str, batch_size: int, settings: Settings) -> None:
    """A queue of 16 batches of 2 MB each, and one batch of 32 MB: neither may touch shared memory before it is refused."""
    asked = spec(data, "large", settings, is_forced=False)
    asked = replace(asked, workload=replace(asked.workload, batch_size=batch_size))
    status, message, most, _, found = with_tiny_shared_memory(asked)
    batch_bytes = batch_size * (1 << 19)
    assert (status, message.startswith("not run: shm "), found["exceeds"]) == ("refused", True, "shm"), message
    assert most < 1 << 20
    assert found["batch"] == {
        "bytes": batch_bytes,
        "tensors": 1,
        "shm_bytes": batch_bytes,
        "pinned_bytes": batch_bytes,
        "samples": batch_size,
    }
    live = settings.num_workers * settings.prefetch_factor + 2
    assert found["predicted"]["shm_bound_bytes"] == live * batch_bytes


@pytest.mark.slow
@pytest.mark.parametrize("collate", [None, "trial_faults:stacked"])
def test_a_forced_trial_ends_soon_with_full_shared_memory(data: str, collate: str | None) -> None:
    """By torch's collate and by one that shares what it made only when it is sent, whose failure no error of the loader tells."""
    asked = spec(data, "large", Settings(2, 8), timeout_seconds=120.0)
    asked = replace(asked, workload=replace(asked.workload, collate=collate))
    status, message, most, seconds, _ = with_tiny_shared_memory(asked)
    assert status == "oom_shm", message
    assert most > 12 << 20
    assert seconds < 30
