"""Stops the way to add data that the README shows from losing, doubling or changing samples, or from needing what it does not say."""

import hashlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text().partition("## Add data\n")[2].partition("\n## ")[0]
COMMANDS = [line.partition("  #")[0].strip() for line in SECTION.splitlines() if line.startswith("shardtools ")]
PACK_ALL = re.search(r"`(pack images/ more/ [^`]+)`", SECTION)
Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command of the README in a folder with ``images/`` and ``more/``."""
    for folder, numbers in (("images", range(20)), ("more", range(20, 27))):
        (tmp_path / folder).mkdir()
        for i in numbers:
            (tmp_path / folder / f"{i:03d}.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes([i]) * (100 + i))
            (tmp_path / folder / f"{i:03d}.json").write_text(f'{{"i": {i}}}')

    def call(command: str) -> "subprocess.CompletedProcess[str]":
        arguments = [sys.executable, "-m", *shlex.split(command)]
        return subprocess.run(arguments, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)

    return call


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_commands_give_one_dataset_of_both_parts(run, tmp_path, read_tars):
    assert [shlex.split(command)[1] for command in COMMANDS] == ["pack", "pack", "pack", "merge", "verify"]
    for command in COMMANDS:
        done = run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    expected = files_of(tmp_path / "images") | files_of(tmp_path / "more")
    assert len(expected) == 54
    assert read_tars(tmp_path / "all" / "images") == expected
    # The shards of the parts are taken as they are, in order.
    tars = [path for day in ("day1", "day2") for path in sorted((tmp_path / "shards" / day).glob("*.tar"))]
    merged = sorted((tmp_path / "all" / "images").glob("*.tar"))
    assert [hashlib.sha256(path.read_bytes()).digest() for path in merged] == [hashlib.sha256(path.read_bytes()).digest() for path in tars]
    done = run("shardtools verify all/images --against images/ --against more/")
    assert done.returncode != 0 and "merge" in done.stdout + done.stderr  # a merge has no recipe to replay


def test_a_key_that_is_in_two_parts_is_refused(run, tmp_path):
    (tmp_path / "more" / "003.jpg").write_bytes(b"\xff\xd8\xff\xe0other")
    (tmp_path / "more" / "003.json").write_bytes(b"{}")
    for command in COMMANDS[:3]:
        assert run(command).returncode == 0
    done = run(COMMANDS[3])
    assert done.returncode == 3 and "'003'" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "all" / "images" / "shardtools.manifest").exists()


def test_everything_packed_at_once_holds_the_same_samples(run, tmp_path, read_tars):
    assert PACK_ALL is not None
    assert run(COMMANDS[0]).returncode == 0
    done = run(f"shardtools {PACK_ALL[1]}")
    assert done.returncode == 0, done.stderr
    assert read_tars(tmp_path / "all" / "shuffled") == files_of(tmp_path / "images") | files_of(tmp_path / "more")


def test_every_sample_stays_in_its_split(run, tmp_path):
    """What was evaluated on is never trained on after data was added, however it is added."""
    assert PACK_ALL is not None
    for command in (COMMANDS[0].replace("--shuffle", "--split train=0.7,val=0.3 --shuffle"), *COMMANDS[1:], f"shardtools {PACK_ALL[1]}"):
        done = run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    expected = files_of(tmp_path / "images") | files_of(tmp_path / "more")
    in_split = {name: int(hashlib.sha256(name.partition(".")[0].encode()).hexdigest()[:16], 16) < 0.7 * 2**64 for name in expected}
    assert 0 < sum(in_split.values()) < len(expected)
    for folder in ("shards/day1", "all/images", "all/shuffled"):
        for split in ("train", "val"):
            (tmp_path / split).mkdir(exist_ok=True)
            found = run(f"shardtools extract {folder} {split}/{Path(folder).name} --split {split}")
            assert found.returncode == 0, found.stderr
            taken = files_of(tmp_path / split / Path(folder).name)
            known = expected if folder.startswith("all") else files_of(tmp_path / "images")
            assert taken == {name: data for name, data in known.items() if in_split[name] == (split == "train")}
