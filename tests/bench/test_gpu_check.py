"""The script for CUDA machines, tried on a simulated device; stops checks that cannot fail, and needs that such machines lack."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))
try:
    import _gpu_checks
    import _gpu_loading
    import _gpu_report
    import _gpu_sim
    import gpu_check
finally:
    sys.path.remove(str(SCRIPTS))

from shardtools.bench.devices.sim import SimDevice  # noqa: E402
from shardtools.bench.window import Window  # noqa: E402

pytestmark = pytest.mark.train

ABSENT = "webdataset,streaming,torchvision,torchdata,tokenizers,gigatoken,orjson,xxhash,zstandard,click,tqdm,jinja2,botocore,pyarrow,ray"
BLOCKED = f"""
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT.split(",")!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[1:]
sys.path[0] = {str(SCRIPTS)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""
HANGING = f"""
import sys, time
sys.path[0] = {str(SCRIPTS)!r}
import gpu_check, _gpu_checks
first = next(iter(_gpu_checks.CHECKS.items()))
_gpu_checks.CHECKS.clear()
_gpu_checks.CHECKS.update([first, ("hangs", lambda rig: time.sleep(600)), ("later", first[1])])
gpu_check._LIMIT_SECONDS, gpu_check._LAST_SECONDS, gpu_check._NEEDED_WINDOWS = 2.0, 0.0, 0
gpu_check.main(sys.argv[1:])
"""


def python(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_every_check_passes_with_the_packages_of_a_cuda_machine_alone(tmp_path: Path) -> None:
    done = python(
        "-c", BLOCKED, str(SCRIPTS / "gpu_check.py"), "--out", "found.json", "--dry-run", "--seconds-per-check", "0.5", folder=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["schema"], found["device"]) == ("shardtools.gpu_check/1", "sim")
    assert found["counts"] == {"passed": 15, "failed": 0, "not run": 0}
    assert [check["name"] for check in found["checks"]] == list(_gpu_checks.CHECKS)
    assert all(check["expected"] and check["got"] and check["what"] and check["seconds"] >= 0 for check in found["checks"])
    assert found["environment"]["torch"] == torch.__version__.partition("+")[0] or torch.__version__ in found["environment"]["torch"]
    assert done.stdout.splitlines()[-1] == "15 passed, 0 failed, 0 not run"
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert os.listdir(tmp_path) == ["found.json"]


def test_without_cuda_it_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "found.json"
    assert gpu_check.main(["--out", str(out)]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith("15 checks not run: expected a CUDA device, got none")
    found = json.loads(out.read_text())
    assert found["counts"] == {"passed": 0, "failed": 0, "not run": 15}
    assert all("expected a CUDA device" in check["reason"] for check in found["checks"])


def test_a_check_that_hangs_ends_with_what_is_known(tmp_path: Path) -> None:
    done = python("-c", HANGING, "--out", "found.json", "--dry-run", "--seconds-per-check", "0.1", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    checks = json.loads((tmp_path / "found.json").read_text())["checks"]
    assert [(check["verdict"], check["reason"]) for check in checks] == [
        ("passed", None),
        ("failed", "it did not end in time"),
        ("not run", "time"),
    ]


def test_verdicts_and_exit_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [0.0]
    deadline = _gpu_report.Deadline(100.0, lambda: moment[0])

    def outcome(is_right: bool, seconds: float = 1.0) -> Callable[[Any], Any]:
        def check(_: Any) -> Any:
            moment[0] += seconds
            return _gpu_report.Outcome("5 ms", {"ms": 7.25}, is_right)

        return check

    def raising(error: Exception) -> Callable[[Any], Any]:
        def check(_: Any) -> Any:
            raise error

        return check

    checks = {
        "right": outcome(True),
        "wrong": outcome(False),
        "not here": raising(_gpu_report.NotRunError("no driver")),
        "lacking": raising(ModuleNotFoundError("x", name="numpy")),
        "broken": raising(RuntimeError("CUDA error: an illegal memory access was encountered\nmore")),
        "slow": outcome(True, seconds=88.5),
        "late": outcome(True),
    }
    results = _gpu_report.Results(checks)
    monkeypatch.setattr(_gpu_report, "gc", SimpleNamespace(collect=lambda: None))  # takes a second each with torch loaded
    _gpu_report.run_checks(checks, None, results, deadline, needed_seconds=10.0)
    entries = results.listed()
    assert [(entry["verdict"], entry["reason"]) for entry in entries] == [
        ("passed", None),
        ("failed", None),
        ("not run", "no driver"),
        ("not run", "numpy is not installed"),
        ("failed", "RuntimeError: CUDA error: an illegal memory access was encountered more"),
        ("passed", None),
        ("not run", "time"),
    ]
    assert [_gpu_report.exit_code(part) for part in (entries[:1], entries[:2], entries[2:3], entries)] == [0, 1, 4, 1]
    assert "         expected: 5 ms\n         got: ms 7.25" in _gpu_report.table(entries)


class Faulty(_gpu_sim.WatchedDevice):
    """A device with one thing wrong."""

    fault = ""

    def record(self, mark: Any) -> None:
        stream = self._current
        if self.fault == "marks on the main stream":
            self._current = self.main_stream()
        if self.fault == "marks cost time":
            self.clock.until(self.clock.now() + 0.002)
        super().record(mark)
        self._current = stream

    def wait(self, waiting: Any, other: Any) -> None:
        if self.fault != "computes before its copy":
            super().wait(waiting, other)

    def side_stream(self) -> Any:
        return self.main_stream() if self.fault == "one stream" else super().side_stream()

    def copied(self, batch: Any, non_blocking: bool) -> Any:
        copied = super().copied(batch, non_blocking)
        if self.fault == "late bytes" and isinstance(batch, torch.Tensor) and batch[0] == 7:
            copied = batch.clone()
            copied[-1] = 0
        return copied

    def is_pinned(self, leaf: Any) -> bool:
        return {"all pinned": True, "none pinned": False}.get(self.fault, super().is_pinned(leaf))

    def synchronize(self) -> None:
        if self.fault != "never waits":
            super().synchronize()


def rig_with(fault: str) -> Any:
    rig = _gpu_sim.SimRig(seconds=0.05)
    device = Faulty(rig._clock)
    device.fault = fault
    rig.device = rig._watched = device
    return rig


def no_rounding(rig: Any) -> None:
    rig.device.pinned_copy = lambda tensor: rig._watched._count(tensor.nbytes) or tensor.clone()


def more_ahead(rig: Any) -> None:
    as_pinned = rig.as_pinned
    rig.as_pinned = lambda batches, num_ahead: as_pinned(batches, num_ahead + 12)


def nothing_pinned(rig: Any) -> None:
    rig.as_pinned = lambda batches, _: batches


def quick_pageable(rig: Any) -> None:
    rig.pageable = SimDevice(rig._clock, copy_gbps=100.0, pins=False)


def always_half(rig: Any) -> None:
    readings = iter([0.0])
    rig.read = lambda: next(readings, 65.0)


def growing_step(rig: Any) -> None:
    calls = [0]

    def step(_: Any) -> None:
        calls[0] += 1
        rig.device.busy(2.0 + calls[0] / 40)

    rig.model_step = lambda _: step


def quiet(rig: Any) -> None:
    @contextmanager
    def busy_host() -> Iterator[None]:
        yield

    rig.busy_host = busy_host


def untouched(_: Any) -> None:
    pass


PLANTS = [
    ("copy-ceilings", "none pinned", untouched),
    ("copy-ceilings", "", quick_pageable),
    ("copy-streams", "marks on the main stream", untouched),
    ("copy-streams", "computes before its copy", untouched),
    ("copy-streams", "one stream", untouched),
    ("copy-overlap", "one stream", untouched),
    ("copy-exposed", "one stream", untouched),
    ("copy-data", "late bytes", untouched),
    ("pinned-rounding", "", no_rounding),
    ("pinned-peaks", "", more_ahead),
    ("pinned-peaks", "", nothing_pinned),
    ("custom-batches", "all pinned", untouched),
    ("custom-batches", "none pinned", untouched),
    ("nvml-duty-cycle", "", always_half),
    ("g-alone", "", growing_step),
    ("h2d-plant", "", quick_pageable),
    ("overhead", "marks cost time", untouched),
    ("launch-delay", "", quiet),
]


@pytest.mark.parametrize(("name", "fault", "plant"), PLANTS, ids=[f"{name}: {fault or plant.__name__}" for name, fault, plant in PLANTS])
def test_a_planted_fault_fails_its_check(name: str, fault: str, plant: Callable[[Any], None]) -> None:
    rig = rig_with(fault)
    plant(rig)
    outcome = _gpu_checks.CHECKS[name](rig)
    assert not outcome.is_right, outcome


def test_a_first_step_that_counts_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "_is_warm", lambda *_: True)
    outcome = _gpu_checks.CHECKS["first-step"](rig_with("never waits"))
    assert not outcome.is_right, outcome


def test_an_error_of_many_lines_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_loading, "sentence_of", str)
    outcome = _gpu_checks.CHECKS["fork-after-cuda"](rig_with(""))
    assert "Traceback" in outcome.got["sentence"]
    assert not outcome.is_right


def test_a_device_others_use_is_not_judged() -> None:
    rig = rig_with("")
    rig.read = lambda: 40.0
    with pytest.raises(_gpu_report.NotRunError, match="something else uses this accelerator: NVML tells 40 %"):
        _gpu_checks.CHECKS["nvml-duty-cycle"](rig)


def test_a_cuda_machine_is_told_from_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which accelerator NVML means, and how large a plant fits, from what a machine with two of them says."""
    import _gpu_rig

    gpus = [SimpleNamespace(index=0, uuid="GPU-a"), SimpleNamespace(index=1, uuid="GPU-b")]
    library: Any = SimpleNamespace(gpus=lambda: gpus, read=lambda i: SimpleNamespace(util_pct=(10.0, None)[i]))
    assert _gpu_rig._NvmlUtilisation(library, "GPU-a").read() == 10.0
    with pytest.raises(_gpu_rig.NotRunError, match="cut into instances"):
        _gpu_rig._NvmlUtilisation(library, "GPU-b").read()
    with pytest.raises(_gpu_rig.NotRunError, match="do not agree"):
        _gpu_rig._NvmlUtilisation(library, "GPU-c")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (4_000_000_000, 8_000_000_000))
    rig = object.__new__(_gpu_rig.CudaRig)
    assert rig.plant_bytes() == 500_000_000
