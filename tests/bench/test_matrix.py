"""The table of settings; stops a cell that would not fit from being run, a table that hides why, and a search that outlives its time.

Most run over trials that are made up; the last ones are real, in fresh processes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardtools.bench.prediction import Batch, Limits, Probe
from shardtools.bench.search import matrix
from shardtools.bench.search.matrix import MatrixLimits, search, space_of
from shardtools.bench.spec import Consumer, Layout, Settings, TrialSpec, Workload
from shardtools.bench.trial import TrialResult

pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

pytestmark = pytest.mark.train

MIB = 1 << 20
HERE = Path(__file__).parent
LAYOUT = Layout("photos", "files", "torch")
BASE = TrialSpec(LAYOUT, Workload(batch_size=4), Settings(1, 2), cache="warm")
ENOUGH = Limits(1 << 40, 1 << 20, 1 << 44)
STATUSES = {"ok", "refused", "oom_shm", "fd", "hang", "error", "skipped"}
CELL_KEYS = {
    "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "status", "message", "rates", "throughput", "ci",
    "wait_p99_ms", "predicted", "measured", "is_computed",
}  # fmt: skip


def found(spec: TrialSpec, rate: float, batch_bytes: int, au: float | None = None) -> dict[str, Any]:
    batch = Batch(batch_bytes, 2, batch_bytes, batch_bytes, 4)
    return {
        "throughput": rate,
        "step_ms": 4000 / rate,
        "rates": {"F": rate, "G": rate / au if au else None, "H": None, "L": rate},
        "au": au,
        "batch": batch.as_json(),
        "probe": Probe(batch, 50 * MIB, 200 * MIB, 0).as_json(),
        "window": {"is_short": False, "is_looped": False, "step_p99_ms": 5000 / rate},
        "startup": {"epoch2_s": None if spec.mode == "throughput" else 0.1 if spec.settings.persistent_workers else 0.6},
        "start_method": "fork",
    }


class Trials:
    """Instead of ``run_trial``."""

    def __init__(self, rate_of: Callable[[Settings], float], batch_bytes: int = MIB, au: float | None = None) -> None:
        self.specs: list[TrialSpec] = []
        self._rate_of = rate_of
        self._batch_bytes = batch_bytes
        self._au = au

    def __call__(self, spec: TrialSpec, prepare: Callable[[], None]) -> TrialResult:
        prepare()
        self.specs.append(spec)
        facts = found(spec, self._rate_of(spec.settings), self._batch_bytes, self._au)
        return TrialResult(spec, "ok", "", facts, {"peaks": {"shm": 3 * MIB, "fd": 20, "rss": 300 * MIB, "pinned": None}})


def rising(settings: Settings) -> float:
    return 100.0 * max(1, min(settings.num_workers, 2))


def searched(
    monkeypatch: pytest.MonkeyPatch, trials: Any, base: TrialSpec = BASE, limits: MatrixLimits | None = None, kind: Any = "knee"
) -> matrix.Searched:
    monkeypatch.setattr(matrix, "run_trial", trials)
    limits = limits or MatrixLimits(2, num_samples=1000, resources=lambda: ENOUGH)
    return search(base, lambda: "proof", kind, limits, lambda _: None, 150.0)


def cell_of(result: matrix.Searched, num_workers: int, prefetch_factor: int = 2, persistent: bool = True) -> dict[str, Any]:
    wanted = (num_workers, prefetch_factor, persistent and num_workers > 0)
    cells = [c for c in result.matrix["cells"] if (c["num_workers"], c["prefetch_factor"], c["persistent_workers"]) == wanted]
    assert len(cells) == 1
    return cells[0]  # type: ignore[no-any-return]


def test_the_table_has_the_promised_parts_and_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    result = searched(monkeypatch, Trials(rising))
    assert json.loads(json.dumps(result.matrix)) == result.matrix
    assert json.loads(json.dumps(result.recommendation)) == result.recommendation
    assert set(result.matrix) == {"kind", "cells", "knee", "best", "num_trials", "full_grid_trials", "stopped"}
    assert all(set(cell) == CELL_KEYS and cell["status"] in STATUSES for cell in result.matrix["cells"])
    assert result.recommendation is not None
    assert set(result.recommendation) == {"params", "predicted", "snippet", "shared_memory", "why", "alternatives", "is_change", "is_known"}
    assert result.matrix["num_trials"] == len(result.trials)
    assert result.matrix["full_grid_trials"] == 57
    assert {trial.cache for trial in result.trials} == {"proof"}


def test_the_knee_is_recommended_with_its_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    result = searched(monkeypatch, Trials(rising))
    knee = result.matrix["cells"][result.matrix["knee"]]
    assert (knee["num_workers"], knee["prefetch_factor"], knee["status"]) == (2, 2, "ok")
    assert knee["throughput"] == 200
    assert knee["ci"] is None or knee["ci"][0] < 200 < knee["ci"][1]
    assert knee["measured"] == {"shm": 3 * MIB, "fd": 20, "rss": 300 * MIB, "pinned": None}
    assert knee["predicted"]["shm_bound_bytes"] == 6 * MIB
    advice = result.recommendation
    assert advice is not None and advice["is_change"]
    assert advice["params"] == {
        "num_workers": 2, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": True, "in_order": True
    }  # fmt: skip
    assert "num_workers=2," in advice["snippet"]
    assert "--shm-size=64m" in advice["shared_memory"]["docker"]
    assert all(set(why) == {"en", "zh"} and why["en"] and why["zh"] for why in advice["why"])
    assert any("2.00x as fast" in why["en"] for why in advice["why"])
    assert [other["params"]["num_workers"] for other in advice["alternatives"]][-1] == 1


def test_keeping_workers_is_computed_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of 1,000 samples takes 5 s, and starting workers 0.5 s more: 200 / 1.1 samples a second."""
    trials = Trials(rising)
    result = searched(monkeypatch, trials)
    twin = cell_of(result, 2, persistent=False)
    assert (twin["is_computed"], twin["status"], twin["rates"]) == (True, "ok", [])
    assert twin["throughput"] == pytest.approx(200 / 1.1)
    assert result.recommendation is not None  # and the sentence has the same basis as the table
    assert any("; new workers each epoch give 91 % of the rate, computed;" in why["en"] for why in result.recommendation["why"])
    assert any("速率为其 91 %（推算）" in why["zh"] for why in result.recommendation["why"])
    assert not any(
        spec.mode == "throughput" and spec.settings.num_workers and not spec.settings.persistent_workers for spec in trials.specs
    )


def test_a_start_that_tells_nothing_is_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of an epoch is not known, so there is nothing to compute."""
    result = searched(monkeypatch, Trials(rising), limits=MatrixLimits(2, resources=lambda: ENOUGH))
    assert not any(cell["num_workers"] and not cell["persistent_workers"] for cell in result.matrix["cells"])


def test_cells_that_do_not_fit_are_refused_and_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 1 MiB in 16 MiB: W·P + 2 may be 12 at most."""
    trials = Trials(lambda settings: 100.0 * max(1, settings.num_workers))
    limits = MatrixLimits(8, resources=lambda: Limits(16 * MIB, None, None))
    result = searched(monkeypatch, trials, limits=limits)
    assert max(spec.settings.num_workers * spec.settings.prefetch_factor for spec in trials.specs) <= 10
    refused = [cell for cell in result.matrix["cells"] if cell["status"] == "refused"]
    assert all("not run: shm" in cell["message"] and "/dev/shm" in cell["message"] for cell in refused)
    assert {(cell["num_workers"], cell["prefetch_factor"]) for cell in refused} >= {(16, 8), (8, 2), (2, 8), (4, 4)}
    assert all(cell["rates"] == [] and cell["throughput"] is None for cell in refused)
    assert result.matrix["cells"][result.matrix["knee"]]["num_workers"] == 5
    assert result.matrix["stopped"].startswith("limit: refused at")
    assert result.recommendation is not None
    assert result.capped is not None  # which is a verdict, and not only a line of the recommendation
    assert (result.capped.at.num_workers, result.capped.wanted.num_workers, result.capped.is_seen) == (5, 10, False)
    assert result.wanted_shm_bytes == 22 * MIB
    assert "22.0 MiB foreseen" in result.recommendation["shared_memory"]["docker"]


def test_few_descriptors_refuse_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tensors a batch, 80 % of 20 descriptors: W·P + 2 may be 8."""
    limits = MatrixLimits(2, resources=lambda: Limits(None, 20, None))
    result = searched(monkeypatch, Trials(rising), limits=limits)
    assert cell_of(result, 4, 8)["status"] == "refused"
    assert "descriptors" in cell_of(result, 4, 8)["message"]


def test_a_fed_device_needs_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    base = TrialSpec(LAYOUT, Workload(batch_size=4), Settings(1, 2), Consumer("sim", step_ms=10), cache="warm")
    result = searched(monkeypatch, Trials(rising, au=0.97), base)
    assert (result.matrix["stopped"], result.matrix["num_trials"]) == ("fed", 1)
    advice = result.recommendation
    assert advice is not None and not advice["is_change"]
    assert advice["params"]["num_workers"] == 1
    assert "change nothing" in advice["why"][0]["en"] and "97 %" in advice["why"][0]["en"]


def test_current_settings_that_are_among_the_best_need_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    base = TrialSpec(LAYOUT, Workload(batch_size=4), Settings(2, 2), cache="warm")
    advice = searched(monkeypatch, Trials(rising), base).recommendation
    assert advice is not None and not advice["is_change"]
    assert advice["params"]["num_workers"] == 2
    assert any("change nothing" in why["en"] and "无需改动" in why["zh"] for why in advice["why"])
    assert advice["params"] not in [other["params"] for other in advice["alternatives"]]


def test_where_nothing_can_be_read_there_is_a_table_and_no_recommendation(monkeypatch: pytest.MonkeyPatch) -> None:
    result = searched(monkeypatch, lambda spec, _: TrialResult(spec, "error", "FileNotFoundError: photos"))
    assert (result.recommendation, result.matrix["knee"]) == (None, None)
    assert {cell["message"] for cell in result.matrix["cells"] if cell["status"] == "error"} == {"FileNotFoundError: photos"}


def test_the_full_grid_has_every_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(rising)
    result = searched(monkeypatch, trials, kind="grid")
    assert (result.matrix["kind"], result.matrix["stopped"], len(result.matrix["cells"])) == ("grid", "full grid", 19)
    assert all(len(cell["rates"]) == 3 and not cell["is_computed"] for cell in result.matrix["cells"])
    knee = result.matrix["cells"][result.matrix["knee"]]
    assert (knee["num_workers"], knee["prefetch_factor"], knee["persistent_workers"]) == (2, 2, True)


def test_windows_fit_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty trials of 150 s have 5 s each, of which a window gets what starting leaves."""
    trials = Trials(rising)
    searched(monkeypatch, trials)
    plain = [spec for spec in trials.specs if spec.mode == "throughput"]
    assert {(spec.min_seconds, spec.min_steps, spec.max_seconds, spec.timeout_seconds) for spec in plain} == {(1.5, 20, 10.0, 30.0)}


def test_pinning_collapses_without_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(rising)
    base = TrialSpec(LAYOUT, Workload(batch_size=4), Settings(1, 2, pin_memory=True), cache="warm")
    result = searched(monkeypatch, trials, base)
    assert not any(spec.settings.pin_memory for spec in trials.specs)
    assert not any(cell["pin_memory"] for cell in result.matrix["cells"])


def test_pinning_is_tried_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    base = TrialSpec(LAYOUT, Workload(batch_size=4), Settings(1, 2), Consumer("sim", step_ms=1, device="cuda"), cache="warm")
    result = searched(monkeypatch, Trials(lambda settings: rising(settings) * (1.5 if settings.pin_memory else 1)), base)
    assert result.recommendation is not None and result.recommendation["params"]["pin_memory"]
    assert "batches_on" in result.recommendation["snippet"]
    pinned = [cell for cell in result.matrix["cells"] if cell["pin_memory"] and cell["num_workers"] == 2 and cell["rates"]]
    assert pinned and pinned[0]["throughput"] == 300


@pytest.mark.parametrize(("shards", "cap"), [(None, 8), (3, 3), (100, 8)])
def test_no_more_workers_than_shards(shards: int | None, cap: int) -> None:
    assert space_of(BASE, MatrixLimits(4, shards)).max_workers == cap


@pytest.fixture
def data(tmp_path: Path) -> str:
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(64):
        (folder / f"{i:03d}.bin").write_bytes(bytes([i]) * 100)
    return str(folder)


@pytest.mark.slow
def test_real_trials_fill_the_table(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker at most: W = 0 and 1. How many trials fit depends on the machine."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    base = TrialSpec(
        Layout(data, "files", "torch"), Workload(batch_size=4, decode="trial_faults:sound"), Settings(1, 2), cache="warm", min_seconds=0.3
    )
    heard: list[str] = []
    result = search(base, lambda: "warm", "knee", MatrixLimits(1, num_shards=1, num_samples=64), heard.append, 60.0)
    tried = [cell for cell in result.matrix["cells"] if cell["rates"]]
    assert {cell["num_workers"] for cell in tried} == {0, 1}
    assert all(cell["predicted"]["ram_bytes"] > 0 and cell["measured"]["rss"] > 0 for cell in tried)
    assert all(trial.result.status == "ok" for trial in result.trials)
    assert result.recommendation is not None
    assert heard[0].startswith("W=1 P=2: ")


TINY_SHM = """
import json, subprocess, sys
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", "/dev/shm"], check=True)
from shardtools.bench.search.matrix import MatrixLimits, search
from shardtools.bench.spec import spec_of
found = search(spec_of(json.loads(sys.argv[1])), lambda: None, "knee", MatrixLimits(2), lambda line: None, 30.0)
print(json.dumps(found.matrix))
"""


@pytest.mark.slow
def test_a_tiny_shared_memory_refuses_cells_and_says_why(data: str) -> None:
    """16 MB in a mount namespace of its own; a batch takes 2 MB, so that W·P + 2 may be 6."""
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a mount namespace of one's own needs root")
    base = TrialSpec(
        Layout(data, "files", "torch"), Workload(batch_size=4, decode="trial_faults:large"), Settings(1, 2), cache="warm", min_seconds=0.3
    )
    command = ["unshare", "-m", sys.executable, "-c", TINY_SHM, json.dumps(base.as_json())]
    finished = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HERE)})
    assert finished.returncode == 0, finished.stderr
    cells = {(cell["num_workers"], cell["prefetch_factor"]): cell for cell in json.loads(finished.stdout)["cells"]}
    for setting in ((4, 2), (4, 8), (2, 4), (1, 8)):
        assert cells[setting]["status"] == "refused", setting
        assert "not run: shm" in cells[setting]["message"]
    assert cells[1, 2]["status"] == "ok"
