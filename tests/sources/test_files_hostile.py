"""Stops odd files from vanishing, from hanging a run, from entering a dataset half read, and from ending in a traceback."""

import json
import os
import time

import pytest

from shardtools.build.run import Listener
from shardtools.errors import BadSampleError, ShardtoolsError, StorageError, UsageError
from shardtools.formats.mds import Mds

NFC = "é.txt".encode()
NFD = "e\u0301.txt".encode()


def rejects(folder) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / ".shardtools" / "rejects").read_bytes().splitlines()]


# What is left out by policy.


def test_hidden_files_and_litter_are_skipped_and_counted(tree, build, plan, read_tars, tmp_path):
    files = ["a.txt", ".hidden.txt", ".git/config", "._a.txt", "d/._b.txt", "d/b.txt", "__pycache__/x.pyc", "d/Thumbs.db", ".DS_Store"]
    source = tree(dict.fromkeys(files, b"x"))
    assert plan(source).survey.skipped == {"hidden": 3, "AppleDouble": 2, "__pycache__": 1, "Thumbs.db": 1}
    build(source, tmp_path / "out")
    assert list(read_tars(tmp_path / "out")) == ["a.txt", "d/b.txt"]


def test_names_like_the_litter_are_data(tree, build, read_tars, tmp_path):
    build(tree({"__pycache__x/a.txt": b"1", "Thumbs.dbx.txt": b"2", "_._a.txt": b"3"}), tmp_path / "out", group="last-dot")
    assert sorted(read_tars(tmp_path / "out").values()) == [b"1", b"2", b"3"]


def test_a_hidden_root_is_read(tree, build, read_tars, tmp_path):
    build(tree({"a.txt": b"1"}, ".cache"), tmp_path / "out")
    assert read_tars(tmp_path / "out") == {"a.txt": b"1"}


def test_empty_folders_add_nothing_and_empty_files_are_data(tree, build, read_tars, read_mds_raw, tmp_path):
    source = tree({"a.txt": b"", "b.txt": b"x"})
    (source / "empty" / "inner").mkdir(parents=True)
    build(source, tmp_path / "wds")
    assert read_tars(tmp_path / "wds") == {"a.txt": b"", "b.txt": b"x"}
    build(source, tmp_path / "mds", "mds")
    assert [row["txt"] for row in read_mds_raw(tmp_path / "mds")] == [b"", b"x"]


# Links and things that are no files.


def test_linked_files_and_folders_are_followed_and_counted(tree, build, plan, read_tars, tmp_path):
    source = tree({"a.txt": b"1"})
    elsewhere = tree({"b.txt": b"2", "c.txt": b"3"}, "elsewhere")
    (source / "link.txt").symlink_to(elsewhere / "b.txt")
    (source / "folder").symlink_to(elsewhere)
    build(source, tmp_path / "out")
    assert read_tars(tmp_path / "out") == {"a.txt": b"1", "folder/b.txt": b"2", "folder/c.txt": b"3", "link.txt": b"2"}
    assert any("2 symbolic links" in note for note in plan(source).survey.notes)


@pytest.mark.timeout(60)
def test_a_link_loop_ends_and_is_counted(tree, build, plan, read_tars, tmp_path):
    source = tree({"d/a.txt": b"1"})
    (source / "d" / "up").symlink_to(source)
    (source / "d" / "here").symlink_to(".")
    build(source, tmp_path / "out")
    assert read_tars(tmp_path / "out") == {"d/a.txt": b"1"}
    assert plan(source).survey.skipped == {"link loop": 2}


@pytest.mark.timeout(60)
def test_two_folders_that_link_to_each_other_end(tree, build, read_tars, tmp_path):
    source = tree({"x/a.txt": b"1", "y/b.txt": b"2"})
    (source / "x" / "to-y").symlink_to(source / "y")
    (source / "y" / "to-x").symlink_to(source / "x")
    build(source, tmp_path / "out")
    found = read_tars(tmp_path / "out")
    assert found["x/a.txt"] == b"1" and found["y/b.txt"] == b"2" and found["x/to-y/b.txt"] == b"2"


@pytest.mark.parametrize("target", ["nothing.txt", "bad.txt"], ids=["link to nothing", "link to itself"])
def test_a_broken_link_is_a_bad_sample(tree, build, read_tars, tmp_path, target, one_sentence):
    source = tree({"a.txt": b"1"})
    (source / "bad.txt").symlink_to(target)
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out")
    assert "bad.txt" in one_sentence(caught.value)
    result = build(source, tmp_path / "tolerant", max_bad="1")
    assert read_tars(tmp_path / "tolerant") == {"a.txt": b"1"}
    assert result.manifest.ledger.rejects == {"unreadable": 1}


@pytest.mark.timeout(60)
def test_a_fifo_is_skipped_and_counted(tree, build, plan, read_tars, tmp_path):
    source = tree({"a.txt": b"1"})
    os.mkfifo(source / "b.txt")
    assert plan(source).survey.skipped == {"not a regular file": 1}
    build(source, tmp_path / "out")
    assert read_tars(tmp_path / "out") == {"a.txt": b"1"}


@pytest.mark.timeout(60)
def test_a_fifo_that_took_the_place_of_a_planned_file_does_not_hang(tree, build, tmp_path, one_sentence):
    source = tree({"a.txt": b"1"})

    def swap(_) -> None:
        (source / "a.txt").unlink()
        os.mkfifo(source / "a.txt")

    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out", listener=Listener(on_plan=swap))
    assert "a.txt" in one_sentence(caught.value)


# Files that change between plan and read.


def vanish(path) -> None:
    path.unlink()


def grow(path) -> None:
    path.write_bytes(b"x" * 3000)


def shrink(path) -> None:
    path.write_bytes(b"x" * 10)


def become_folder(path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (vanish, "unreadable", "removed after planning"),
        (grow, "changed", "more than 1000"),
        (shrink, "changed", "got 10"),
        (become_folder, "unreadable", "directory"),
    ],
)
@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_a_file_that_changed_after_planning_is_a_bad_sample(tree, build, tmp_path, change, reason, words, format_, one_sentence):
    files = {"a.txt": b"1" * 1000, "d/b.txt": b"2" * 1000, "c.txt": b"3" * 1000}
    source = tree(files)
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out", format_, listener=Listener(on_plan=lambda _: change(source / "d" / "b.txt")))
    text = one_sentence(caught.value)
    assert "d/b.txt" in text and words.lower() in text.lower()

    source = tree(files, "again")
    listener = Listener(on_plan=lambda _: change(source / "d" / "b.txt"))
    result = build(source, tmp_path / "tolerant", format_, listener=listener, max_bad="1")
    assert result.manifest.ledger.rejects == {reason: 1}
    assert result.manifest.ledger.num_written == 2
    (found,) = rejects(tmp_path / "tolerant")
    assert found["where"] == "d/b.txt" and found["reason"] == reason


def test_a_read_that_returns_less_than_asked_is_read_on(tree, build, read_tars, tmp_path, monkeypatch):
    """Network file systems may answer a read with fewer bytes than the file has."""
    source = tree({"a.txt": bytes(range(256)) * 8})
    real = os.read
    monkeypatch.setattr(os, "read", lambda fd, count: real(fd, min(count, 700)))
    build(source, tmp_path / "out")
    assert read_tars(tmp_path / "out") == {"a.txt": bytes(range(256)) * 8}


def test_an_unreadable_file_names_the_permission(tree, build, tmp_path, monkeypatch, one_sentence):
    source = tree({"a.txt": b"1", "d/b.txt": b"2"})
    real = os.open

    def refuse(path, *arguments, **options):
        if os.fsencode(path).endswith(b"b.txt"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out")
    text = one_sentence(caught.value)
    assert "d/b.txt" in text and "Permission denied" in text and "permission" in text


def test_an_unreadable_folder_stops_the_run_and_names_it(tree, plan, monkeypatch, one_sentence):
    source = tree({"a.txt": b"1", "secret/b.txt": b"2"})
    real = os.scandir

    def refuse(path):
        if not isinstance(path, int) and os.fsencode(path).endswith(b"secret"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StorageError) as caught:
        plan(source)
    assert "secret" in one_sentence(caught.value) and "Permission denied" in str(caught.value)


# Names.


LONG = "/".join(["n" * 240, "m" * 240, "o" * 200 + ".txt"]).encode()
HOSTILE = {
    b"new\nline.txt": b"new=0Aline",
    b"bad\xff\xfebytes.txt": b"bad=FF=FEbytes",
    b"__x.txt": b"=5F_x",
    b"d__/__init__.txt": b"d__/=5F_init__",
    b"-dash.txt": b"=2Ddash",
    b"sp ace/tab\tname.txt": b"sp=20ace/tab=09name",
    b"back\\slash.txt": b"back=5Cslash",
    b"equal=41.txt": b"equal=3D41",
    b"quote'\".txt": b"quote=27=22",
    b"%d{a..b}$HOME.txt": b"=25d=7Ba=2E=2Eb=7D=24HOME",
    b"UPPER.txt": b"UPPER",
    b"upper.txt": b"upper",
    NFC: b"=C3=A9",
    NFD: b"e=CC=81",
}


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_hostile_names_have_these_keys_and_their_own_bytes(tree, build, read_tars, read_mds_raw, tmp_path, format_):
    source = tree({name: name for name in HOSTILE})
    encodings = {"txt": "bytes"} if format_ == "mds" else {}
    result = build(source, tmp_path / "out", format_, group="last-dot", encodings=encodings)
    if format_ == "wds":
        found = {name.removesuffix(".txt").encode(): data for name, data in read_tars(tmp_path / "out").items()}
    else:
        found = {row["key"]: row["txt"] for row in read_mds_raw(tmp_path / "out")}
    assert found == {key: name for name, key in HOSTILE.items()}
    assert any("2 keys" in warning and "case" in warning for warning in result.warnings)


def test_names_of_680_bytes_have_keys_of_at_most_80(tree, build, read_tars, tmp_path):
    other = LONG.replace(b"o.txt", b"p.txt")
    build(tree({LONG: b"1", other: b"2"}), tmp_path / "out")
    members = read_tars(tmp_path / "out")
    assert sorted(members.values()) == [b"1", b"2"]
    for name in members:
        key = name.removesuffix(".txt")
        assert len(key) <= 80 and key.startswith("n" * 46) and "=x" in key


def test_the_names_survive_every_table_a_run_keeps(tree, build, tmp_path, one_sentence):
    """A name is also part of the plan, of receipts, of rejects and of messages."""
    source = tree({name: name for name in HOSTILE})
    for name in HOSTILE:
        path = os.path.join(os.fsencode(source), name)
        with open(path, "wb") as file:
            file.write(b"\xff")
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out", "mds", group="last-dot")
    one_sentence(caught.value)
    with pytest.raises(ShardtoolsError) as caught:
        build(source, tmp_path / "out", "mds", group="last-dot", max_bad="100")
    one_sentence(caught.value)
    (source / "good.txt").write_bytes(b"good")
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "out", "mds", group="last-dot", max_bad="100")
    assert "good" in one_sentence(caught.value)
    build(source, tmp_path / "fresh", "mds", group="last-dot", max_bad="100")
    found = rejects(tmp_path / "fresh")
    assert len(found) == len(HOSTILE)
    assert all(reject["head"] == "\xff" for reject in found)
    assert {"new\\nline.txt", "new\nline.txt"} & {reject["where"] for reject in found}


def test_twins_under_case_and_unicode_folding_are_a_warning_with_a_count(tree, build, tmp_path):
    result = build(tree({b"a.txt": b"1", b"A.txt": b"2", NFC: b"3", NFD: b"4", b"b.txt": b"5"}), tmp_path / "out")
    (warning,) = result.warnings
    assert warning.startswith("2 keys")


def test_an_extension_no_reader_takes_is_one_sentence(tree, build, tmp_path, one_sentence):
    source = tree({"a.txt": b"1", "b.txt (copy)": b"2", "c.a~": b"3"})
    with pytest.raises(ShardtoolsError) as caught:
        build(source, tmp_path / "out")
    assert "(copy)" in one_sentence(caught.value) or "a~" in str(caught.value)


# Sizes.


def test_a_5_gib_file_is_refused_for_mds_by_name_and_unread(tree, build, tmp_path, monkeypatch, one_sentence):
    source = tree({"a.bin": b"1"})
    with open(source / "huge.bin", "wb") as file:
        file.truncate(5 << 30)
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **options: (opened.append(os.fsencode(path)), real(path, *rest, **options))[1])
    began = time.monotonic()
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out", "mds")
    assert time.monotonic() - began < 20
    text = one_sentence(caught.value)
    assert "huge.bin" in text and str(5 << 30) in text and "format" in text
    assert not any(path.endswith(b"huge.bin") for path in opened)
    result = build(source, tmp_path / "tolerant", "mds", max_bad="1")
    assert result.manifest.ledger.rejects == {"too-large": 1} and result.manifest.ledger.num_written == 1


def test_the_most_a_format_can_hold_is_what_the_formats_say():
    assert Mds.max_value_bytes == 4294967295


# The budget.


@pytest.fixture
def three_bad(tree):
    return tree({"a.txt": b"\xff\xfe" + b"y" * 100, "b.txt": b"\xff", "c.txt": b"\xff", **{f"good{i}.txt": b"ok" for i in range(7)}})


def test_the_budget_is_a_count(three_bad, build, tmp_path, one_sentence):
    result = build(three_bad, tmp_path / "out", "mds", max_bad="3")
    ledger = result.manifest.ledger
    assert (ledger.num_read, ledger.num_written, ledger.rejects) == (10, 7, {"wrong-type": 3})
    with pytest.raises(BadSampleError) as caught:
        build(three_bad, tmp_path / "less", "mds", max_bad="2")
    assert "--max-bad" in one_sentence(caught.value)
    assert not (tmp_path / "less" / "index.json").exists()


def test_the_budget_is_a_percentage_of_what_was_read(three_bad, build, tmp_path, one_sentence):
    build(three_bad, tmp_path / "out", "mds", max_bad="30%")
    with pytest.raises(BadSampleError) as caught:
        build(three_bad, tmp_path / "less", "mds", max_bad="29.9%")
    assert "29.9%" in one_sentence(caught.value)


def test_the_rejects_file_has_where_reason_and_the_first_bytes(three_bad, build, tmp_path):
    build(three_bad, tmp_path / "out", "mds", max_bad="3")
    found = rejects(tmp_path / "out")
    assert [reject["where"] for reject in found] == ["a.txt", "b.txt", "c.txt"]
    assert {reject["reason"] for reject in found} == {"wrong-type"}
    assert found[0]["head"] == "\xff\xfe" + "y" * 62
    assert all("UTF-8" in reject["sentence"] for reject in found)


def test_a_run_without_rejects_has_no_rejects_file(tree, build, tmp_path):
    build(tree({"a.txt": b"1"}), tmp_path / "out", max_bad="5")
    assert not (tmp_path / "out" / ".shardtools" / "rejects").exists()


def test_a_destination_inside_the_source_is_wrong_use(tree, build, one_sentence):
    source = tree({"a.txt": b"1"})
    with pytest.raises(UsageError) as caught:
        build(source, source / "out")
    assert "outside" in one_sentence(caught.value)


def test_a_destination_that_holds_something_else_is_wrong_use_and_left_alone(tree, build, one_sentence):
    out = tree({"mine.txt": b"precious"}, "out")
    with pytest.raises(UsageError) as caught:
        build(tree({"a.txt": b"1"}), out)
    assert "mine.txt" in one_sentence(caught.value)
    assert (out / "mine.txt").read_bytes() == b"precious"
    assert not (out / ".shardtools" / "build").exists()
