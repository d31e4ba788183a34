"""The README tells the truth: every command and snippet in it runs as written, and its option table is current."""

import math
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = [
    line.partition("  #")[0].strip()
    for language, block in BLOCKS
    for line in block.splitlines()
    if not language and line.startswith("shardtools ")
]
SNIPPETS = [block for language, block in BLOCKS if language == "python"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs the README speaks of, in which its commands were run in order."""
    folder = tmp_path_factory.mktemp("readme")
    script = [sys.executable, str(ROOT / "scripts/make_sample_data.py"), str(folder), "--pairs", "40", "--records", "60", "--chats", "30"]
    subprocess.run(script, check=True, capture_output=True)
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


VOCABULARY = 1 << 17


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
