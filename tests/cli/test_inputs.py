"""What SRC is, is seen the same way wherever the files lie on the disk, and no file is read twice.

Stops a source that is recognised on one machine and not on the next, and samples doubled by overlapping folders.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardtools.build.order import detect_source
from shardtools.errors import UsageError
from shardtools.sources import Input, first_files, resolve_inputs


def write(root: Path, names: Iterable[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}\n")
    return root


def detected(*arguments: Path) -> str:
    return detect_source(resolve_inputs([str(argument) for argument in arguments]))


@pytest.mark.parametrize(
    "odd", ["Thumbs.db", "__pycache__/a.pyc", "._a.jsonl", ".hidden", ".git/config", "sub/Thumbs.db", "sub/__pycache__/b.pyc"]
)
def test_files_that_are_never_packed_say_nothing_of_the_kind(tmp_path, odd):
    assert detected(write(tmp_path / "src", ["a.jsonl", "sub/b.jsonl", odd])) == "jsonl"


def test_a_linked_folder_is_looked_into(tmp_path):
    write(tmp_path / "far", ["a.jsonl"])
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "link").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "loop").symlink_to(tmp_path / "far")
    assert detected(tmp_path / "src") == "jsonl"


def test_every_input_is_looked_at_however_large_the_first_is(tmp_path):
    images = write(tmp_path / "images", [f"{i:04d}.jpg" for i in range(300)])
    docs = write(tmp_path / "docs", ["a.jsonl"])
    with pytest.raises(UsageError, match="inputs of one kind"):
        detected(images, docs)


def test_the_order_of_directory_entries_changes_nothing(tmp_path, monkeypatch):
    """Beyond the look lies another kind of file; whether it is seen must not hang on how the folder is stored."""
    source = write(tmp_path / "src", [*(f"a{i:04d}.jpg" for i in range(250)), "z.jsonl"])
    real = os.scandir

    class Reversed:
        def __init__(self, path: Any) -> None:
            with real(path) as listing:
                self.entries = sorted(listing, key=lambda entry: entry.name, reverse=True)

        def __enter__(self) -> Iterator[Any]:
            return iter(self.entries)

        def __exit__(self, *exception: object) -> None:
            pass

    before = (detected(source), first_files(Input(str(source)), 200))
    monkeypatch.setattr(os, "scandir", Reversed)
    assert (detected(source), first_files(Input(str(source)), 200)) == before
    assert before[0] == "files" and before[1][:2] == [b"a0000.jpg", b"a0001.jpg"] and len(before[1]) == 200


def test_the_look_goes_through_folders_in_turn_and_ends(tmp_path):
    source = write(tmp_path / "src", ["b/1.txt", "a/2.txt", "a/x/3.txt", "c.txt", "b/0.txt"])
    assert first_files(Input(str(source)), 9) == [b"c.txt", b"a/2.txt", b"a/x/3.txt", b"b/0.txt", b"b/1.txt"]
    assert first_files(Input(str(source)), 2) == [b"c.txt", b"a/2.txt"]
    assert first_files(Input(str(source), (b"b/1.txt", b"a/2.txt")), 1) == [b"a/2.txt"]


OVERLAPS = {
    "a folder in a folder": ["nr", "nr/sub"],
    "the other way round": ["nr/sub", "nr"],
    "far below": ["nr", "nr/sub/deep"],
    "beside others": ["other", "nr/sub", "nr"],
    "a file far below": ["nr", "nr/sub/a.txt"],
    "by a link": ["nr", "link"],
    "by a link to the same folder": ["nr", "same"],
    "by a link inside": ["nr", "nr/out"],
    "a list": ["nr", "@list"],
    "a file and a list": ["nr/sub/a.txt", "@list"],
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_no_file_is_taken_twice(tmp_path, monkeypatch, case):
    write(tmp_path, ["nr/0.txt", "nr/sub/a.txt", "nr/sub/deep/b.txt", "other/c.txt", "far/d.txt"])
    (tmp_path / "link").symlink_to("nr/sub")
    (tmp_path / "same").symlink_to("nr")
    (tmp_path / "nr" / "out").symlink_to("../far")
    (tmp_path / "list").write_text("other/c.txt\nnr/sub/a.txt\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="every input once") as caught:
        resolve_inputs(OVERLAPS[case])
    named = [tmp_path / argument.replace("@list", "nr/sub/a.txt") for argument in OVERLAPS[case] if argument != "other"]
    assert all(str(path) in str(caught.value) for path in named)


def test_neighbours_do_not_overlap(tmp_path, monkeypatch):
    write(tmp_path, ["nr/a.txt", "nr2/a.txt", "nr.b/a.txt", "x/y.txt"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text("x/y.txt\n")
    assert len(resolve_inputs(["nr", "nr2", "nr.b", "@list"])) == 4
