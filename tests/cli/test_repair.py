"""``index`` and ``merge`` on the command line: exit codes, one sentence a fault, results on standard output, examples that run."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shardtools

COMMAND = [sys.executable, "-m", "shardtools"]


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two WDS datasets, ``shards/a`` and ``shards/b``, of ten samples in five shards each."""
    place: Path = tmp_path_factory.mktemp("repair")
    for name in "ab":
        (place / f"{name}.jsonl").write_text("".join(f'{{"id": "{name}{i}"}}\n' for i in range(10)))
        words = ["--to", "wds", "--key", "id", "--shard-samples", "2", "--engine", "serial"]
        assert run(place, "pack", f"{name}.jsonl", f"shards/{name}", *words).returncode == 0
    return place


@pytest.fixture
def place(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "place"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def examples(command: str) -> list[list[str]]:
    """The commands a help ends in, as written."""
    text = run(Path.cwd(), command, "--help").stdout
    return [line.split()[1:] for line in text.partition("Examples:")[2].splitlines() if line.strip()]


def test_the_help_of_index_ends_in_two_examples_that_work(place):
    shutil.move(place / "shards", place / "both")
    shutil.move(place / "both" / "a", place / "shards")
    found = examples("index")
    assert len(found) == 2
    for arguments in found:
        (place / "shards" / "shardtools.offsets").unlink()
        done = run(place, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
    assert (place / "shards" / "train-000000.idx").exists()
    assert run(place, "verify", "shards").returncode == 0


def test_the_help_of_merge_ends_in_two_examples_that_work(place):
    found = examples("merge")
    assert len(found) == 2
    for arguments in found:
        if (place / "shards" / "all").exists():
            shutil.rmtree(place / "shards" / "all")
            shutil.move(place / "shards", place / "parts")
        done = run(place, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
        assert run(place, "verify", "shards/all").returncode == 0


def test_index_says_what_it_did(place):
    (place / "shards" / "a" / "shardtools.offsets").write_bytes(b"other")
    done = run(place, "index", "shards/a", "--json")
    content = json.loads(done.stdout)
    assert content.pop("seconds") >= 0
    assert content == {"samples": 10, "shards": 5, "bytes": 51200, "made": [], "replaced": ["shardtools.offsets"], "adopted": []}
    assert done.stderr == "note: replaced shardtools.offsets, which was damaged or not what the shards say\n"
    (place / "shards" / "a" / "shardtools.offsets").unlink()
    table = run(place, "index", "shards/a").stdout.splitlines()
    assert table[:4] == ["samples  10", "shards   5", "bytes    51,200", "made     shardtools.offsets"]


def test_merge_says_what_it_did_and_when_there_is_nothing_to_do(place):
    done = run(place, "merge", "shards", "all", "--json")
    content = json.loads(done.stdout)
    assert [content[name] for name in ("already_complete", "inputs", "samples", "shards", "bytes")] == [False, 2, 20, 10, 102400]
    assert content["ledger"] == {"read": 20, "written": 20, "rejected": 0, "filtered": 0, "rejects": {}}
    again = run(place, "merge", "shards", "all")
    assert (again.returncode, again.stderr) == (0, "already complete: the dataset of these very inputs is there\n")
    assert again.stdout.splitlines()[:2] == ["inputs    2", "samples   20"]


@pytest.mark.parametrize("command", [["index", "shards/a"], ["merge", "shards/b", "shards/a", "out"]], ids=["index", "merge"])
def test_each_damaged_shard_is_one_sentence_and_the_code_is_3(place, command):
    for number in (1, 3):
        cut(place / "shards" / "a" / f"train-00000{number}.tar")
    done = run(place, *command, "--json")
    assert (done.returncode, done.stdout) == (3, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    for line, number in zip(lines, (1, 3), strict=True):
        assert re.fullmatch(
            rf"error: .*/shards/a/train-00000{number}\.tar: expected 10,240 bytes, got 1,000; restore it and run the same command again",
            line,
        )
    assert not (place / "out").exists()


CODES = {
    "no dataset": (["index", "nothing"], 2),
    "unknown sidecars": (["index", "shards/a", "--sidecars", "x"], 2),
    "no source": (["merge", "out"], 2),
    "a source twice": (["merge", "shards/a", "shards/a", "out"], 2),
    "destination in a source": (["merge", "shards", "shards/all"], 2),
    "a copy of a source": (["merge", "shards/a", "copy", "out"], 3),
}


@pytest.mark.parametrize("case", CODES)
def test_exit_codes(place, case):
    arguments, code = CODES[case]
    shutil.copytree(place / "shards" / "a", place / "copy")
    done = run(place, *arguments)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1 and done.stdout == ""


@pytest.mark.slow
def test_an_interrupted_merge_ends_with_130_and_goes_on(tmp_path):
    (tmp_path / "a").mkdir()
    make = "import io,os,sys,tarfile\nt=tarfile.open(sys.argv[1],'w',format=tarfile.USTAR_FORMAT)\n" + (
        "for i in range(4000):\n n=tarfile.TarInfo(f'{i:05d}.bin'); n.size=50000; t.addfile(n, io.BytesIO(os.urandom(50000)))\nt.close()\n"
    )
    subprocess.run([sys.executable, "-c", make, str(tmp_path / "a" / "0.tar")], check=True)
    started = subprocess.Popen([*COMMAND, "merge", "a", "out"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    time.sleep(0.7)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    if started.returncode == 130:
        assert said.startswith("error: interrupted") and "Traceback" not in said
        assert not (tmp_path / "out" / "shardtools.manifest").exists()
    assert run(tmp_path, "merge", "a", "out").returncode == 0
    assert run(tmp_path, "verify", "out").returncode == 0
