"""``pack --dry-run`` looks at the destination as well. Stops a plan that looks well and a run that is refused after it was waited for."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardtools.build.publish import Publisher

Pack = Callable[..., Any]
WORDS = ("docs.jsonl", "out", "--to", "mds")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "docs.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(9)))
    return tmp_path


@pytest.fixture
def foreseen(place: Path, pack_here: Pack) -> Callable[..., str]:
    """What ``--dry-run`` says of the destination, after which everything is as it was."""

    def call(*words: str) -> str:
        before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        folders = {path for path in place.rglob("*") if path.is_dir()}
        done = pack_here(place, *WORDS, *words, "--dry-run", "--json")
        assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
        assert {path for path in place.rglob("*") if path.is_dir()} == folders
        if done.returncode:
            assert len(done.stderr.splitlines()) == 1 and done.stdout == ""
            return f"{done.returncode} {done.stderr}"
        return str(json.loads(done.stdout)["destination"])

    return call


def test_it_says_what_a_run_would_do(place: Path, pack_here: Pack, foreseen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert foreseen() == "new"
    assert pack_here(place, *WORDS, "--dry-run").stdout.splitlines()[-1].split() == ["destination", "new"]
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pack_here(place, *WORDS)
    assert foreseen() == "goes on with what an earlier run built"
    assert foreseen("--overwrite") == "replaces what is there"
    other = foreseen("--shard-samples", "2")
    assert other.startswith("2 error: expected ") and "an unfinished build of another" in other
    assert pack_here(place, *WORDS).returncode == 0
    assert foreseen() == "already complete"
    assert foreseen("--overwrite") == foreseen("--overwrite", "--shard-samples", "2") == "replaces what is there"
    assert "a finished dataset of another" in foreseen("--shard-samples", "2")
    (place / "out/shard.00000.mds").unlink()
    assert "shard.00000.mds missing" in foreseen()


def test_files_of_others_are_refused(place: Path, foreseen: Any) -> None:
    (place / "out").mkdir()
    assert foreseen() == "new"
    (place / "out/notes.txt").write_text("mine")
    for words in ((), ("--overwrite",)):
        assert "1 file that no manifest names, such as notes.txt" in foreseen(*words)


def test_a_destination_in_the_source_is_refused(place: Path, pack_here: Pack) -> None:
    done = pack_here(place, ".", "out", "--to", "mds", "--from", "jsonl", "--dry-run")
    assert done.returncode == 2 and "expected a destination outside the source" in done.stderr


def test_what_cannot_be_written_is_refused(place: Path, foreseen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "out").write_text("a file")
    assert foreseen().startswith("3 error: expected a folder, or none yet, at ")
    (place / "out").unlink()
    # Root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != place)
    assert f"3 error: expected a place that can be written, got {place};" in foreseen()
    (place / "out").mkdir()
    assert foreseen() == "new"
