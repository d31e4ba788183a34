"""Stops workers that hang or warn because a tokenizer was used before they were started, and state that travels to them."""

import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizer_files as files

from shardtools.engines.processes import Processes
from shardtools.transforms.tokenize import Tokenize

TEXTS = [f"the cat sat {i} times on the mat" for i in range(50)]
_FORKS = """
import os, sys, warnings
warnings.simplefilter("error")
sys.path[:0] = sys.argv[2:]
import tokenizer_files as files
from pathlib import Path
os.environ["TOKENIZERS_PARALLELISM"] = "true"
transform = files.settled(Path(sys.argv[1]))
assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
before = files.run(transform, ["the cat"] * 200).ids
child = os.fork()
if child == 0:
    os._exit(0 if files.run(transform, ["the cat"] * 200).ids == before else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


class Run:
    """A task that an engine can send to a worker."""

    def __init__(self, transform: Tokenize) -> None:
        self.transform = transform

    def __call__(self, texts: Any, report: Any) -> list[list[int]]:
        return files.run(self.transform, texts).ids


@pytest.mark.timeout(60)
def test_a_fork_after_use_neither_hangs_nor_warns(tmp_path: Path) -> None:
    path = files.small_tokenizer(tmp_path)
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", _FORKS, str(path), here], capture_output=True, text=True, timeout=200)
    assert done.stdout == "0\n", done.stderr
    assert done.stderr == ""


@pytest.mark.timeout(60)
def test_a_spawned_process_encodes_the_same(tmp_path: Path) -> None:
    path = files.small_tokenizer(tmp_path)
    transform = files.settled(path)
    expected = files.run(transform, TEXTS).ids
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(Run(transform), (TEXTS, None)) == expected


@pytest.mark.timeout(60)
def test_worker_processes_of_the_engine(tmp_path: Path) -> None:
    path = files.small_tokenizer(tmp_path)
    transform = files.settled(path)
    expected = files.run(transform, TEXTS).ids
    found: list[list[list[int]]] = []
    Processes(2).run(Run(transform), [TEXTS] * 3, lambda _: None, found.append)
    assert found == [expected] * 3


def test_what_travels_is_small_and_equal(tmp_path: Path) -> None:
    transform = files.settled(files.small_tokenizer(tmp_path))
    files.run(transform, TEXTS)
    sent = pickle.dumps(transform)
    assert len(sent) < 2000
    assert pickle.loads(sent) == transform
