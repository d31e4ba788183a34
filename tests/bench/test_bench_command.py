"""``bench`` as it is typed: a report that keeps its schema, bounds that fail, faults in one sentence; stops figures nobody can trust."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from null_walk import stale, unexplained

from shardtools.cli._group import run as run_here

torch = pytest.importorskip("torch", reason="needs the extra train")
pytest.importorskip("webdataset", reason="needs the extra train")

pytestmark = pytest.mark.train

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "shardtools"]
QUICK = ["--blocks", "2", "--min-seconds", "0.2", "--num-workers", "1", "--batch-size", "16", "--attribute", "none"]
SCHEMA = json.loads((ROOT / "shardtools/bench/report/schema.json").read_text())


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 300 pairs as files and as shards."""
    folder = tmp_path_factory.mktemp("bench")
    script = [sys.executable, str(ROOT / "scripts/make_sample_data.py"), str(folder), "--pairs", "300"]
    subprocess.run([*script, "--records", "20", "--chats", "1"], check=True, capture_output=True)
    assert run("pack", "images", "wds", "--to", "wds", cwd=folder).returncode == 0
    return folder


@pytest.fixture(scope="module")
def done(data: Path) -> subprocess.CompletedProcess[str]:
    return run("bench", "images", "wds", *QUICK, "--step-ms", "2", "--report", "report", "--require-ratio", "1000", cwd=data)


@pytest.fixture(scope="module")
def report(data: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads((data / "report/bench.json").read_text())
    return found


def test_the_report_keeps_the_schema_that_is_shipped(report: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    broken = {**report, "comparisons": [{**report["comparisons"][0], "p": 2}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(broken)


def test_both_sides_run_in_every_block_and_delivered_the_same(report: dict[str, Any]) -> None:
    rows = [(trial["block"], trial["side"], trial["spec"]["mode"], trial["status"]) for trial in report["trials"]]
    blocks = [(block, side, "throughput", "ok") for block in (0, 1) for side in (0, 1)]
    assert sorted(rows[:4]) == blocks
    assert rows[4:] == [(None, 0, "timeline", "ok"), (None, 1, "timeline", "ok")]
    assert (report["workload"]["n_samples"], report["workload"]["decode"]) == (300, "rgb")
    assert [side["name"] for side in report["sides"]] == ["files by torch", "wds by webdataset"]
    proofs = report["workload"]["proofs"]
    assert [(proof["num_delivered"], proof["num_repeated"], proof["whole"]) for proof in proofs] == [(300, 0, True)] * 2
    (compared,) = report["comparisons"]
    assert (compared["a"], compared["b"], compared["n"]) == ("files by torch", "wds by webdataset", 2)
    rates = [{trial["block"]: trial["found"]["throughput"] for trial in report["trials"][:4] if trial["side"] == side} for side in (0, 1)]
    product = rates[1][0] / rates[0][0] * rates[1][1] / rates[0][1]
    assert compared["ratio"] == pytest.approx(product**0.5)


def test_a_batch_is_what_was_asked_for(report: dict[str, Any]) -> None:
    for trial in report["trials"]:
        assert trial["found"]["batch"]["bytes"] == 16 * 3 * 224 * 224
        assert trial["found"]["batch"]["samples"] == 16


def test_the_parts_of_a_trial_fit_together(report: dict[str, Any]) -> None:
    """W = 1, P = 2: 4 batches warm up at least."""
    for trial in report["trials"]:
        found, window = trial["found"], trial["found"]["window"]
        assert window["warm_steps"] >= 4
        assert found["throughput"] == pytest.approx(window["steady_samples"] / window["steady_s"])
        assert min(found["startup"][name] for name in ("iter_s", "first_batch_s", "teardown_s")) > 0
        assert trial["watched"]["wall_s"] == pytest.approx(window["wall_s"], rel=0.05)
        assert trial["watched"]["counters"]["cpu_util"] > 0
        assert trial["watched"]["affinity_cpus"] == len(os.sched_getaffinity(0))


def test_every_trial_began_cold_and_it_is_proved(report: dict[str, Any]) -> None:
    for trial in report["trials"]:
        cache = trial["cache"]
        if cache["resident_before"] is None:
            assert cache["label"] == "unknown" and cache["not_measured"]
        elif cache["label"] != "warm":  # as on a file system in memory
            assert cache["resident_before"] <= 0.01
            assert cache["resident_after"] > 0.5


def test_every_null_has_a_reason(report: dict[str, Any]) -> None:
    assert unexplained(report) == []
    assert stale(report) == []


def test_a_bound_that_is_missed_is_code_1_and_a_sentence(done: subprocess.CompletedProcess[str], report: dict[str, Any]) -> None:
    assert done.returncode == 1
    low = report["comparisons"][0]["ci"][0]
    assert f"expected the second side 1000 times as fast as the first, got surely {low:.2f} times" in done.stderr


def test_the_text_fits_a_terminal_and_says_what_was_found(done: subprocess.CompletedProcess[str], report: dict[str, Any]) -> None:
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "shardtools bench   images  vs  wds   (300 samples)"
    assert any(line.startswith("files by torch") for line in lines) and any(line.startswith("wds by webdataset") for line in lines)
    text = " ".join(lines)
    assert report["comparisons"][0]["answer"] in " ".join(lines[1:5]), "the answer comes first"
    assert "the same 300 samples, each delivered once" in text
    assert "no accelerator used" in text


@pytest.mark.slow
def test_what_limits_the_loader_keeps_the_schema_too(data: Path, tmp_path: Path) -> None:
    options = [*QUICK[:-2], "--blocks", "1", "--report", str(tmp_path / "report")]
    assert run("bench", "images", *options, cwd=data).returncode == 0
    found = json.loads((tmp_path / "report/bench.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert (unexplained(found), stale(found)) == ([], [])
    assert found["verdict"]["side"] == 0 and found["ablation"]
    assert found["verdict"]["sentence_en"].startswith("files by torch: ")


def test_nothing_is_left_behind(data: Path, report: dict[str, Any]) -> None:
    assert all(trial["leftovers"] == [] for trial in report["trials"])
    assert sorted(path.name for path in data.iterdir()) == ["chats.jsonl", "docs.jsonl", "images", "report", "tokenizer", "wds"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["images", "wds", "--gpu"], 3, "expected a CUDA device, got none"),
        (["images", "wds", "--gpu", "--device", "cpu"], 2, "expected one of --gpu and --device cpu, got both"),
        pytest.param(["images/00", "wds"], 2, "expected the same samples on both sides", marks=pytest.mark.slow),
        (["images", "wds", "--reader", "torchvision"], 2, "expected a reader as one of torch, webdataset, streaming, shardtools"),
        (["images", "nowhere"], 2, "nowhere"),
        (["images", "wds", "--cache", "cold-full"], 2, "expected --allow-drop-caches with --cache cold-full"),
        (["images", "wds", "--consumer", "sim"], 2, "expected --step-ms X with --consumer sim"),
        (["images", "wds", "--transform", "no.such:function"], 2, "no.such"),
        (["images", "wds", "--step-ms", "nan"], 2, "expected finite numbers, got nan or infinity"),
        (["images", "wds", "--require-au", "90"], 2, "expected --step-ms, --model or --gpu with --require-au"),
        (["images", "wds", "--report", "/proc/report"], 3, "expected a folder for the report at /proc/report"),
        (["images", "wds", "--require-ratio", "1"], 2, "expected two sides and two blocks or more with --require-ratio"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_faults_of_a_user_are_one_sentence(
    data: Path, arguments: list[str], code: int, sentence: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has torch imported already."""
    options = QUICK if "--require-ratio" not in arguments else ["--blocks", "1"]
    monkeypatch.setattr(sys, "argv", ["shardtools", "bench", *arguments, *options])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(data)
    with pytest.raises(SystemExit) as ended:
        run_here()
    said = capfd.readouterr()
    assert (ended.value.code, said.out) == (code, ""), said.err
    (error,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert sentence in error
    assert "Traceback" not in said.err


def test_a_seed_no_generator_takes_and_a_bucket_for_the_report_are_refused(data: Path) -> None:
    """Before a side is read: neither a traceback from where the order is drawn, nor a folder of this machine that is called s3:."""
    seed = run("bench", "wds", *QUICK, "--seed", str(2**64), cwd=data)
    assert (seed.returncode, "Traceback" in seed.stderr) == (2, False)
    assert "0<=x<=18446744073709551615" in seed.stderr
    report = run("bench", "wds", *QUICK, "--report", "s3://bucket/report", cwd=data)
    assert (report.returncode, report.stderr) == (
        2,
        "error: expected a folder of this machine for the report, got s3://bucket/report; write it here, and copy it there\n",
    )
    assert not (data / "s3:").exists()
