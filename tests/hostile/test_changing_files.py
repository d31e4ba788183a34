"""Files that go or shrink while they are looked at: stops a verify that dies without a word.

A file that is mapped and then cut is a SIGBUS at the next touch, which no exception handler sees.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardtools

pytestmark = pytest.mark.timeout(120)
NUM_BYTES = 24 << 20
# What happens to the file happens at a sure moment: when it was opened and nothing of it was read.
SCRIPT = """
import os, sys
from shardtools.datasets import Dataset
from shardtools.verify import VerifyOptions, verify

folder, event = sys.argv[1:]
stored = Dataset.stored

def act(path):
    if event == "cut":
        os.truncate(path, 4096)
    elif event == "emptied":
        os.truncate(path, 0)
    elif event == "removed":
        os.unlink(path)

def watched(dataset, shard):
    view = stored(dataset, shard)
    act(dataset.storage.local_path(shard.name))
    return view

Dataset.stored = watched
verdict = verify(folder, VerifyOptions(workers=1))
for finding in verdict.findings:
    print(finding)
print("exit code", verdict.exit_code)
"""


@pytest.fixture
def watched(folder):
    def run(event: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}
        return subprocess.run([sys.executable, "-c", SCRIPT, str(folder), event], env=environment, capture_output=True, text=True)

    return run


@pytest.fixture
def two_shards(folder, tar):
    """Tars of one large member and a small one."""
    for name in ("a", "b"):
        (folder / f"{name}.tar").write_bytes(tar([(f"{name}0.bin", bytes(NUM_BYTES)), (f"{name}1.bin", b"1")]))


@pytest.mark.usefixtures("two_shards")
@pytest.mark.parametrize("event", ["cut", "emptied"])
def test_a_shard_that_is_cut_while_it_is_read(watched, event):
    done = watched(event)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-300:]}"
    assert done.stdout.splitlines()[-1] in ("exit code 1", "exit code 3")


@pytest.mark.usefixtures("two_shards")
def test_a_shard_that_is_removed_while_it_is_read(watched):
    """What was opened can still be read, but it is no longer what the folder holds."""
    done = watched("removed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "exit code 3"


@pytest.mark.parametrize("name", ["shardtools.offsets", "index.json", "train-000000.tar", "shardtools.manifest"])
def test_a_file_that_goes_between_two_looks(folder, build, rows, tmp_path, monkeypatch, name):
    """It is there when the folder is listed, and not when it is opened."""
    from shardtools.datasets import Dataset
    from shardtools.verify import VerifyOptions, verify

    (tmp_path / "src").mkdir()
    source = rows([b"a", b"b"], {"bin": [b"1", b"2"]}, {"bin": "bytes"})
    build(tmp_path / "src", folder, "mds" if name == "index.json" else "wds", source=source, shard_samples=1)
    stored = Dataset.stored

    def remove_first(dataset, shard):
        (folder / name).unlink(missing_ok=True)
        return stored(dataset, shard)

    monkeypatch.setattr(Dataset, "stored", remove_first)
    assert verify(str(folder), VerifyOptions(workers=1)).exit_code in (0, 1, 3)
