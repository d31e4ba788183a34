"""The README tells the truth: every command and snippet in it runs as written, and its option table is current."""

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
COMMANDS = [
    line.partition("  #")[0].strip()
    for block in re.findall(r"```\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("shardtools ")
]
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs the README speaks of, in which its commands were run in order."""
    folder = tmp_path_factory.mktemp("readme")
    script = [sys.executable, str(ROOT / "scripts/make_sample_data.py"), str(folder), "--pairs", "40", "--records", "60"]
    subprocess.run(script, check=True, capture_output=True)
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)


def test_every_command_runs_in_order(folder: Path) -> None:
    assert len(COMMANDS) >= 6
    for command in COMMANDS:
        done = run(command, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.train
def test_every_snippet_reads_all_samples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in COMMANDS:
        run(command, folder)
    monkeypatch.chdir(folder)
    counts = []
    for snippet in SNIPPETS:
        names: dict[str, object] = {}
        with warnings.catch_warnings():
            # The reference readers and what they import warn on their own account.
            warnings.simplefilter("ignore")
            pytest.importorskip("webdataset", reason="needs the extra train")
            pytest.importorskip("streaming", reason="needs the extra train")
            exec(snippet, names)
            counts.append(sum(1 for _ in names["dataset"]))  # type: ignore[call-overload]
    assert counts == [40, 60]


def test_the_option_table_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts/options_table.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
