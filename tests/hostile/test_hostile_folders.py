"""Folders whose files are no files: stops a verify that hangs on a pipe, reads a device without end, or follows a link into a loop."""

import json
import os
import socket

import pytest

from shardtools.errors import ShardtoolsError
from shardtools.formats.mds import Mds
from shardtools.verify import VerifyOptions, verify

pytestmark = pytest.mark.timeout(10)
FIRST = "train-000000.tar"


@pytest.fixture
def published(folder, build, rows, tmp_path):
    """A dataset of this package in two shards, as WDS."""
    (tmp_path / "src").mkdir()
    source = rows([b"a", b"b"], {"bin": [b"1", b"2"]}, {"bin": "bytes"})
    build(tmp_path / "src", folder, "wds", source=source, shard_samples=1)
    return folder


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    opened = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path has little room
    opened.bind(path.name)
    os.chdir(here)
    opened.close()


STAND_INS = {
    "FIFO": make_fifo,
    "socket": make_socket,
    "folder": lambda path: path.mkdir(),
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "link to /dev/null": lambda path: path.symlink_to("/dev/null"),
    "link to a FIFO": lambda path: (os.mkfifo(path.parent.parent / "fifo"), path.symlink_to("../fifo")),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to its folder": lambda path: path.symlink_to("."),
    "link to /proc/self/mem": lambda path: path.symlink_to("/proc/self/mem"),
    "link to /proc/kmsg": lambda path: path.symlink_to("/proc/kmsg"),
    "link to a file outside": lambda path: path.symlink_to("../secret.mds"),
}


def code_of(verdict, one_sentence):
    """The exit code of a verify that may have nothing to go by: what describes the dataset is no file."""
    try:
        return verdict().exit_code
    except ShardtoolsError as error:
        one_sentence(error)
        return error.exit_code


@pytest.mark.parametrize("stand_in", STAND_INS)
@pytest.mark.parametrize("name", [FIRST, "shardtools.offsets"])
def test_in_place_of_a_published_file(published, verdict, name, stand_in):
    (published / name).unlink()
    STAND_INS[stand_in](published / name)
    assert verdict().exit_code in (1, 3)


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_in_place_of_a_manifest(published, verdict, one_sentence, stand_in):
    (published / "shardtools.manifest").unlink()
    STAND_INS[stand_in](published / "shardtools.manifest")
    assert code_of(verdict, one_sentence) in (1, 3)


@pytest.mark.parametrize("stand_in", [name for name in STAND_INS if name not in ("folder", "link to its folder")])
def test_in_place_of_a_foreign_tar(folder, tar, verdict, stand_in):
    """Folders may have any name."""
    (folder / "a.tar").write_bytes(tar([("a.bin", b"1")]))
    STAND_INS[stand_in](folder / "b.tar")
    assert verdict().exit_code in (1, 3)


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_in_place_of_an_index(folder, verdict, one_sentence, stand_in):
    (folder / "shard.00000.mds").write_bytes(b"1234567")
    STAND_INS[stand_in](folder / "index.json")
    assert code_of(verdict, one_sentence) in (1, 2, 3)


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_in_place_of_an_mds_shard(folder, mds_entry, verdict, stand_in):
    (folder / "index.json").write_text(json.dumps({"shards": [mds_entry({"x": "bytes"}, 7)], "version": 2}))
    STAND_INS[stand_in](folder / "shard.00000.mds")
    assert verdict().exit_code in (1, 3)


def test_a_link_to_a_sound_copy_outside_is_read_but_not_changed(published, verdict, tmp_path):
    """Datasets made of links into a store are common."""
    (published / FIRST).rename(tmp_path / "elsewhere.tar")
    (published / FIRST).symlink_to("../elsewhere.tar")
    assert verdict().findings == ()


def test_a_loop_of_folders(published, verdict):
    (published / "loop").symlink_to(".")
    (published / "up").symlink_to("..")
    assert verdict().exit_code in (0, 1)


def test_a_folder_that_is_a_link(published, tmp_path):
    (tmp_path / "link").symlink_to(published)
    assert verify(str(tmp_path / "link"), VerifyOptions(workers=1)).findings == ()


def test_file_names_that_are_no_text(folder, tar, command):
    for name in (b"\xff\xfe.tar", b"a\nb.tar", b"\x1b[2J.tar", b"-rf.tar", b"x" * 251 + b".tar"):
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:
            file.write(tar([("../a.bin", b"1")]))
    outcome = command("verify")
    assert outcome.code == 1
    assert outcome.stdout.count("unsafe-name: ") == 5
    assert command("verify", "--json").code == 1


def test_folders_below_folders_without_end(folder, tar, verdict):
    deep = folder
    for _ in range(150):
        deep = deep / "dddddddddddddddd"
        deep.mkdir()
    (deep / "a.tar").write_bytes(tar([("a.bin", b"1")]))
    assert verdict().findings == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads whatever the permissions say")
@pytest.mark.parametrize("name", [FIRST, "shardtools.manifest", "shardtools.offsets"])
def test_a_file_that_must_not_be_read(published, command, name):
    (published / name).chmod(0)
    assert command("verify").code == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads whatever the permissions say")
def test_a_folder_that_must_not_be_listed(published, command):
    (published / "closed").mkdir()
    (published / "closed").chmod(0)
    assert command("verify").code in (1, 3)
    (published / "closed").chmod(0o700)


def test_a_folder_that_cannot_be_written(folder, build, rows, tmp_path):
    """Nothing is created in the dataset, not even for a moment; compressed shards unpack elsewhere."""
    (tmp_path / "src").mkdir()
    source = rows([b"a", b"b"], {"bin": [b"1", b"2"]}, {"bin": "bytes"})
    build(tmp_path / "src", folder, Mds(compression="zstd"), source=source, shard_samples=1)
    folder.chmod(0o500)
    changed = folder.stat().st_mtime_ns
    assert verify(str(folder), VerifyOptions(workers=1, deep=True)).findings == ()
    assert folder.stat().st_mtime_ns == changed, "root creates files all the same, and the folder's time shows it"
    folder.chmod(0o700)
