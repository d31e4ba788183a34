"""Stops a loss of power from leaving a dataset whose shards never came to the disk, and small partitions from waiting for it one by one.

What is on the disk is told by what was synced when: no test can pull the plug. What a loss of power may leave of files that were
not is laid there by hand.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardtools import partitions as partitions_module
from shardtools.build.order import Order
from shardtools.build.run import RunOptions, build_part
from shardtools.build.stages.advance import Share
from shardtools.build.write import BuildTask
from shardtools.engines.serial import Serial
from shardtools.formats.wds import Wds
from shardtools.plan import ShardLimit
from shardtools.sources.files import Files
from shardtools.storage import _file_writer

PARTITION_BYTES = 8 << 10
FILES = {f"{i:03d}.bin": bytes([i]) * 1000 for i in range(60)}
MANIFEST = "shardtools.manifest"


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", PARTITION_BYTES)


class Stopped(Serial):
    """Ends after everything is built and before anything is published."""

    def run(self, task: Any, items: Any, *rest: Any) -> None:
        super().run(task, items, *rest)
        if isinstance(task, BuildTask):
            raise KeyboardInterrupt


class Synced:
    """Which files were on the disk at each renaming: by inode, which a renaming keeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: set[int] = set()
        self.renamed: list[tuple[Path, bool]] = []
        """Each new name, and whether its bytes had been synced by then."""
        self.at_manifest: set[int] = set()
        real_sync, real_replace = os.fsync, os.replace

        def sync(fd: int) -> None:
            real_sync(fd)
            self.files.add(os.fstat(fd).st_ino)

        def replace(source: str, target: str) -> None:
            self.renamed.append((Path(target), os.stat(source).st_ino in self.files))
            if Path(target).name == MANIFEST:
                self.at_manifest = set(self.files)
            real_replace(source, target)

        monkeypatch.setattr(os, "fsync", sync)
        monkeypatch.setattr(os, "replace", replace)

    def below(self, folder: str) -> list[bool]:
        return [was_synced for path, was_synced in self.renamed if path.parent.name == folder]


def test_every_shard_is_on_the_disk_before_the_manifest_names_it(tree, build, tmp_path, monkeypatch):
    source = tree(FILES)
    synced = Synced(monkeypatch)
    build(source, tmp_path / "out", shard_bytes=20480)
    shards = sorted((tmp_path / "out").glob("*.tar"))
    assert len(shards) > 5
    assert {path.stat().st_ino for path in shards} <= synced.at_manifest
    assert (tmp_path / "out").stat().st_ino in synced.at_manifest


def test_on_one_machine_no_partition_waits_for_the_disk(tree, build, tmp_path, monkeypatch):
    source = tree(FILES)
    synced = Synced(monkeypatch)
    build(source, tmp_path / "out", shard_bytes=20480)
    assert len(synced.below("staged")) > 5 and not any(synced.below("staged"))
    assert len(synced.below("receipts")) > 5 and not any(synced.below("receipts"))


class SeveralMachines(Serial):
    spans_machines = True


@pytest.mark.parametrize("options", [RunOptions(SeveralMachines()), RunOptions(part=Share(0, 2))], ids=["machines", "part"])
def test_what_others_rely_on_is_on_the_disk(tree, tmp_path, monkeypatch, options):
    source = tree(FILES)
    synced = Synced(monkeypatch)
    build_part([str(source)], str(tmp_path / "out"), Order(Files(), Wds(), ShardLimit(20480)), options)
    assert len(synced.below("staged")) > 2 and all(synced.below("staged"))
    assert len(synced.below("receipts")) > 2 and all(synced.below("receipts"))


def test_the_disk_begins_with_a_large_shard_while_others_are_built(tree, build, tmp_path, monkeypatch):
    monkeypatch.setattr(_file_writer, "_WORTH_A_START", 4 << 10)
    begun, real = list[int](), os.posix_fadvise

    def advise(fd: int, offset: int, length: int, advice: int) -> None:
        real(fd, offset, length, advice)
        if advice == os.POSIX_FADV_DONTNEED:
            begun.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    source = tree(FILES)
    build(source, tmp_path / "out", shard_bytes=20480)
    shards = sorted((tmp_path / "out").glob("*.tar"))
    assert len(shards) > 5 and {path.stat().st_ino for path in shards} <= set(begun)


def blank(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_count(path: Path) -> None:
    """Another number in the line of JSON, which still is one."""
    data = path.read_bytes()
    before = b'"samples": '
    at = data.index(before) + len(before)
    assert data[at : at + 1] != b"9"
    path.write_bytes(data[:at] + b"9" + data[at + 1 :])


@pytest.mark.parametrize(
    ("folder", "harm"), [("staged", blank), ("staged", empty), ("receipts", blank), ("receipts", empty), ("receipts", other_count)]
)
def test_what_a_loss_of_power_left_is_built_again(tree, build, digests, tmp_path, folder: str, harm: Callable[[Path], None]):
    source = tree(FILES)
    build(source, tmp_path / "clean", shard_bytes=20480)
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", shard_bytes=20480, engine=Stopped())
    lost = sorted((tmp_path / "out" / ".shardtools" / "build").glob(f"*/{folder}/*"))
    assert len(lost) > 5
    for path in lost[::2]:
        harm(path)
    build(source, tmp_path / "out", shard_bytes=20480)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")
