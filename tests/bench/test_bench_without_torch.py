"""``bench`` where torch is not installed or cannot be loaded says so in one sentence; stops a traceback on the core install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise {fault}

sys.meta_path.insert(0, Blocker())
sys.argv = ["shardtools", *sys.argv[1:]]
from shardtools.cli import main
main()
"""


@pytest.mark.parametrize("arguments", [["{folder}"], ["--self-test"]], ids=["data", "self-test"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("ModuleNotFoundError(\"No module named 'torch'\")", "run pip install 'shardtools[train]'"),
        (
            'ImportError("libtorch.so: failed to map segment")',
            "got 'libtorch.so: failed to map segment'; see what `shardtools doctor` says",
        ),
    ],
    ids=["absent", "broken"],
)
def test_torch_that_is_not_there_is_one_sentence(tmp_path: Path, arguments: list[str], fault: str, words: str) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    command = [sys.executable, "-c", WITHOUT.format(fault=fault), "bench", *(word.format(folder=tmp_path) for word in arguments)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr, done.stderr
