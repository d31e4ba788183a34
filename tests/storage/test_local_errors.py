"""Stops a full disk, a missing permission or a limit from ending in a traceback, or from leaving a part of an object."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import shardtools
from shardtools.errors import StorageError
from shardtools.storage import open_storage
from shardtools.storage.local import Local

BIG = b"x" * 600_000


@pytest.mark.parametrize("action", ["put", "create", "writer"])
def test_a_full_disk_is_a_sentence_that_says_what_to_do_and_what_was_there_stays(small_disk, action, one_sentence):
    storage = Local(str(small_disk(400)))
    storage.put("x", b"old")
    with pytest.raises(StorageError) as caught:
        if action == "put":
            storage.put("x", BIG)
        elif action == "create":
            storage.create("y", BIG)
        else:
            writer = storage.writer("tmp/z")
            try:
                for _ in range(10):
                    writer.write(BIG[:100_000])
            finally:
                writer.abort()
    text = one_sentence(caught.value)
    assert os.strerror(errno.ENOSPC) in text and "free some space" in text and storage.uri in text
    assert storage.get("x") == b"old"
    assert list(storage.names()) == ["x"]
    storage.put("y", b"y" * 100_000)


def test_a_limit_on_file_sizes_is_a_sentence_and_nothing_is_left(tmp_path, one_sentence):
    storage = Local(str(tmp_path))
    storage.put("x", b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        with pytest.raises(StorageError) as caught:
            storage.put("x", BIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.strerror(errno.EFBIG) in one_sentence(caught.value)
    assert storage.get("x") == b"old" and list(storage.names()) == ["x"]


def test_a_full_disk_a_copy_is_fetched_to_is_a_sentence_that_names_it(small_disk, tmp_path, one_sentence):
    disk = small_disk(400)
    storage = Local(str(tmp_path / "root"))
    storage.put("x", BIG)
    with pytest.raises(StorageError) as caught:
        storage.fetch("x", str(disk / "copy"))
    text = one_sentence(caught.value)
    assert os.strerror(errno.ENOSPC) in text and str(disk / "copy") in text and f"{storage.uri}/x" in text
    assert storage.get("x") == BIG


def test_a_file_that_is_there_is_not_fetched_over(tmp_path, one_sentence):
    storage = Local(str(tmp_path))
    storage.put("x", b"1")
    storage.put("y", b"2")
    with pytest.raises(StorageError) as caught:
        storage.fetch("x", storage.local_path("y"))
    assert os.strerror(errno.EEXIST) in one_sentence(caught.value)
    assert storage.get("y") == b"2"


def test_a_fifo_is_neither_waited_for_nor_fetched_as_nothing(tmp_path, one_sentence):
    storage = Local(str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    for action in (lambda: storage.fetch("fifo", str(tmp_path / "new")), lambda: storage.get("fifo")):
        with pytest.raises(StorageError) as caught:
            action()
        assert "expected a regular file" in one_sentence(caught.value)
    assert not (tmp_path / "new").exists()


AS_NOBODY = """
import os, sys
from shardtools.errors import StorageError
from shardtools.storage.local import Local
root = sys.argv[1]
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
storage = Local(root)
actions = {
    "put": lambda: storage.put("new", b"1"),
    "create": lambda: storage.create("new", b"1"),
    "writer": lambda: storage.writer("new"),
    "move": lambda: storage.move("x", "y"),
    "delete": lambda: storage.delete("x"),
    "get": lambda: storage.get("secret"),
    "sha256": lambda: storage.sha256("secret"),
    "fetch": lambda: storage.fetch("secret", "/dev/null/x"),
    "names": lambda: list(storage.names()),
    "num_bytes": lambda: storage.num_bytes("closed/x"),
}
for name, action in actions.items():
    try:
        action()
    except StorageError as error:
        print(name, "|", error)
"""


def test_every_action_without_the_permission_is_a_sentence():
    # Below a folder another user can enter, as the test's own folder may not be.
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "x").write_bytes(b"1")
        (root / "secret").write_bytes(b"2")
        (root / "secret").chmod(0)
        (root / "closed").mkdir()
        (root / "closed" / "x").write_bytes(b"3")
        (root / "closed").chmod(0)
        root.chmod(0o555)
        try:
            environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run([sys.executable, "-c", AS_NOBODY, folder], env=environment, capture_output=True, text=True, check=False)
        finally:
            root.chmod(0o755)
            (root / "closed").chmod(0o755)
    if "ModuleNotFoundError" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("another user cannot read the package here")
    assert done.returncode == 0, done.stderr
    sentences = dict(line.split(" | ", 1) for line in done.stdout.splitlines())
    assert sorted(sentences) == ["create", "delete", "fetch", "get", "move", "names", "num_bytes", "put", "sha256", "writer"]
    for sentence in sentences.values():
        assert sentence.startswith("could not ") and "Permission denied" in sentence and "give this user the permission" in sentence


def test_a_file_in_the_way_of_a_folder_is_a_sentence(tmp_path, one_sentence):
    storage = Local(str(tmp_path))
    storage.put("x", b"1")
    for action in (lambda: storage.put("x/y", b"2"), lambda: storage.create("x/y", b"2"), lambda: storage.writer("x/y")):
        with pytest.raises(StorageError) as caught:
            action()
        assert "x/y" in one_sentence(caught.value)
    assert storage.get("x") == b"1"


def test_a_short_write_is_gone_on_with(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:1000])))
    Local(str(tmp_path)).put("x", bytes(range(256)) * 50)
    monkeypatch.undo()
    assert (tmp_path / "x").read_bytes() == bytes(range(256)) * 50


def test_files_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        Local(str(tmp_path)).put("a/x", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "x").stat().st_mode & 0o777 == 0o640


def test_a_relative_path_means_the_folder_of_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    storage = open_storage("out")
    monkeypatch.chdir("/")
    storage.put("x", b"1")
    assert (tmp_path / "out" / "x").read_bytes() == b"1"
    assert open_storage(f"file://{tmp_path}/out").get("x") == b"1"


def test_everything_that_was_stored_was_synced(tmp_path, monkeypatch):
    """A file is on stable storage before its name is, and the name before anything that follows."""
    events: list[str] = []
    real_sync, real_replace, real_link = os.fsync, os.replace, os.link

    def kind(fd: int) -> str:
        return "folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file"

    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(kind(fd)), real_sync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda *a: (events.append("rename"), real_replace(*a))[1])
    monkeypatch.setattr(os, "link", lambda *a: (events.append("rename"), real_link(*a))[1])
    storage = Local(str(tmp_path / "new"))
    storage.put("x", b"1")
    # Each new folder is synced into the one above it before anything is put there.
    assert events == ["folder"] * 4 + ["file", "rename", "folder"]
    events.clear()
    storage.create("y", b"1")
    assert events == ["file", "rename", "folder"]
    events.clear()
    # A move waits for the next put into its folder, as the manifest does for the shards.
    storage.move("y", "z")
    storage.put("manifest", b"1")
    assert events == ["rename", "file", "rename", "folder"]


def test_a_folder_that_another_run_removes_at_the_same_moment_is_gone(tmp_path, monkeypatch):
    storage, real = Local(str(tmp_path)), os.unlink
    storage.put("a/b", b"x")

    def unlink(path, **options):
        try:
            real(path, **options)
        except IsADirectoryError:
            shutil.rmtree(path)
            raise

    monkeypatch.setattr(os, "unlink", unlink)
    storage.delete("a")
    assert list(storage.names()) == []
