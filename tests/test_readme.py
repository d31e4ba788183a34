"""The README tells the truth: every command and snippet in it runs as written, and its option table is current."""

import math
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from s3_stores import client_of

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
ALL_COMMANDS = [
    line.partition("  #")[0].strip()
    for language, block in BLOCKS
    for line in block.splitlines()
    if not language and line.startswith("shardtools ")
]
ON_A_BUCKET = [command for command in ALL_COMMANDS if "s3://" in command]
COMMANDS = [command for command in ALL_COMMANDS if command not in ON_A_BUCKET]
JOBS = [
    line.partition("  #")[0].strip()
    for language, block in BLOCKS
    for line in block.splitlines()
    if not language and re.search(r"\bpipelines\b", line.partition("  #")[0])
]
SNIPPETS = [block for language, block in BLOCKS if language == "python"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs the README speaks of, in which its commands were run in order."""
    folder = tmp_path_factory.mktemp("readme")
    script = [sys.executable, str(ROOT / "scripts/make_sample_data.py"), str(folder), "--pairs", "40", "--records", "60", "--chats", "30"]
    subprocess.run(script, check=True, capture_output=True)
    (folder / "more").mkdir()
    for path in sorted((folder / "images").rglob("*.*"))[:6]:
        (folder / "more" / path.name).write_bytes(path.read_bytes())
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    arguments = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)


IS_BENCH = "shardtools bench "
QUICKLY = " --blocks 1 --min-seconds 0.2 --attribute none"
"""A measurement takes minutes, on purpose."""


def test_every_command_runs_in_order(folder: Path) -> None:
    commands = [command for command in COMMANDS if not command.startswith(IS_BENCH)]
    assert len(commands) >= 6
    for command in commands:
        done = run(command, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_every_command_on_a_bucket_runs_in_order(folder: Path, s3_uri: str, s3_store: dict[str, Any]) -> None:
    bucket, _, prefix = s3_uri.removeprefix("s3://").partition("/")
    client = client_of(s3_store["environment"])
    for path in (folder / "images").rglob("*.*"):
        client.put_object(Bucket=bucket, Key=f"{prefix}/raw/{path.relative_to(folder)}", Body=path.read_bytes())
    assert len(ON_A_BUCKET) >= 4
    for command in ON_A_BUCKET:
        here = command.replace("s3://bucket", s3_uri).replace("http://127.0.0.1:8333", s3_store["endpoint"])
        done = run(here, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_every_batch_job_starts_what_it_says(folder: Path, tmp_path: Path) -> None:
    """The launchers print what they would run; that runs here, without the cluster."""
    (tmp_path / "sbatch").write_text('#!/bin/sh\nshift\nexec bash "$@"\n')
    (tmp_path / "sbatch").chmod(0o755)
    task = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "8", "SLURM_CPUS_PER_TASK": "1"}
    environment = {**os.environ, **task, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "echo"}
    said = []
    for job in JOBS:
        line = job.replace("python -m", "echo -m")
        started = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        here = re.sub(r"/nfs/|s3://(in|out)/", "", started).replace("--engine ray --ray-address head:6379", "--engine serial")
        done = run(here.strip().removeprefix("-m "), folder)
        assert done.returncode == 0, f"{job}\n{done.stdout}{done.stderr}"
        said.append(done.stdout.partition(" in ")[0].partition(";")[0])
    assert said == ["40 samples", "part 3/8 done", "40 samples"]


@pytest.mark.train
def test_every_measurement_runs(folder: Path) -> None:
    for reader in ("webdataset", "streaming"):
        pytest.importorskip(reader, reason="needs the extra train")
    for command in COMMANDS:
        if not command.startswith(IS_BENCH):
            run(command, folder)
    commands = [command for command in COMMANDS if command.startswith(IS_BENCH)]
    assert len(commands) >= 4
    for command in commands:
        done = run(command + QUICKLY + (" --matrix-seconds 5" if "--matrix" in command else ""), folder)
        is_gpu = "--gpu" in command  # the environment hides CUDA devices
        assert done.returncode == (3 if is_gpu else 0), f"{command}\n{done.stdout}{done.stderr}"
        assert ("expected a CUDA device, got none" if is_gpu else "Proved before: ") in done.stdout + done.stderr


@pytest.mark.train
def test_every_snippet_reads_all_samples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in COMMANDS:
        if not command.startswith(IS_BENCH):
            run(command, folder)
    monkeypatch.chdir(folder)
    counts = []
    names: dict[str, object] = {"model": stand_in, "train": len}
    for snippet in SNIPPETS:
        before = names.get("dataset")
        with warnings.catch_warnings():
            # The reference readers and what they import warn on their own account.
            warnings.simplefilter("ignore")
            pytest.importorskip("webdataset", reason="needs the extra train")
            pytest.importorskip("streaming", reason="needs the extra train")
            exec(snippet, names)
            if names.get("dataset") is not before:
                counts.append(sum(1 for _ in names["dataset"]))  # type: ignore[call-overload]
    assert counts == [40, 40, 60]
    assert float(names["loss"]) == pytest.approx(math.log(VOCABULARY))  # type: ignore[arg-type]


VOCABULARY = 1 << 13
"""More than the tokenizer has; all logits of a batch are in memory."""


def stand_in(tokens, positions, mask):
    """A model to which all tokens are equally likely; demands what the README says it is given."""
    import torch

    rows, length = tokens.shape
    assert positions.shape == (rows, length) and mask.shape == (rows, 1, length, length)
    return torch.zeros(rows, length, VOCABULARY)


def test_the_bad_sample_it_shows_is_what_is_said(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"text":"a","score":1}\n' * 1200 + '{"text":"b","score":"high"}\n')
    done = run("shardtools pack docs.jsonl out --to mds", tmp_path)
    assert done.returncode == 3
    assert [block for language, block in BLOCKS if language == "text"] == [done.stderr.splitlines(keepends=True)[-1]]


def test_the_recipe_it_shows_is_one(folder: Path) -> None:
    (recipe,) = [block for language, block in BLOCKS if language == "toml"]
    (folder / "recipe.toml").write_text(recipe)
    (command,) = re.findall(r"`(shardtools pack docs\.jsonl\s\S+ --recipe recipe\.toml)`", TEXT)
    done = run(f"{command} --overwrite", folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "shards" / "mds" / "index.json").exists()


def test_the_exit_codes_it_lists_are_those_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"a": 1}\n[]\n')
    runs = {
        0: "shardtools pack docs.jsonl out --to wds --max-bad 1",
        2: "shardtools pack docs.jsonl other --to zip",
        3: "shardtools pack docs.jsonl other --to wds",
    }
    assert {code: run(command, tmp_path).returncode for code, command in runs.items()} == {code: code for code in runs}
    (tmp_path / "out" / "train-000000.tar").write_bytes(b"")
    assert run("shardtools verify out", tmp_path).returncode == 1
    table = TEXT.partition("| exit code | means |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == ["0", "1", "2", "3", "130"]


def test_the_option_table_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts/options_table.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
