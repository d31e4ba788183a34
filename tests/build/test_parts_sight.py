"""A worker on a machine that sees other files ends the run before it builds anything; stops its samples from being counted as bad."""

import os
from pathlib import Path
from typing import ClassVar

import pytest

from shardtools import partitions as partitions_module
from shardtools.build import sight
from shardtools.build.write import BuildTask
from shardtools.engines.serial import Serial
from shardtools.errors import StorageError


class Elsewhere(Serial):
    """Tasks run where a file has another name, or another length."""

    spans_machines: ClassVar[bool] = True

    def __init__(self, path: Path, during: str, cut: int | None) -> None:
        for name, value in (("path", path), ("during", during), ("cut", cut), ("tasks", [])):
            object.__setattr__(self, name, value)

    def run(self, task, items, *rest) -> None:
        inner = task
        while hasattr(inner, "task"):
            inner = inner.task
        if self.during != ("building" if isinstance(inner, BuildTask) else "planning"):
            super().run(task, items, *rest)
            return
        self.tasks.append(len(items))
        away = self.path.with_name("away")
        data = self.path.read_bytes()
        os.rename(self.path, away)
        if self.cut is not None:
            self.path.write_bytes(data[: self.cut])
        sight._look.cache_clear()  # another process
        try:
            super().run(task, items, *rest)
        finally:
            os.rename(away, self.path)


@pytest.fixture
def source(tree, monkeypatch) -> Path:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 1000)
    return tree({f"{i % 3}/{i:02d}.bin": b"x" * 900 for i in range(12)})


@pytest.mark.parametrize("during", ["planning", "building"])
@pytest.mark.parametrize(("cut", "got"), [(None, "none"), (5, "another of 5 bytes")])
def test_a_machine_without_the_inputs(source, build, one_sentence, tmp_path, during, cut, got):
    engine = Elsewhere(source / "0" / "00.bin", during, cut)
    with pytest.raises(StorageError, match=f"to see the input {source}, with 0/00.bin in it, got {got} on ") as caught:
        build(source, tmp_path / "out", engine=engine, max_bad="100%")
    one_sentence(caught.value)
    assert len(engine.tasks) == 1
    assert not (tmp_path / "out" / ".shardtools" / "build").exists()


def test_a_machine_without_the_destination(source, build, one_sentence, tmp_path):
    engine = Elsewhere(tmp_path / "out" / ".shardtools" / "build" / "plan", "building", None)
    with pytest.raises(
        StorageError, match=f"to see the destination {tmp_path}/out, with .shardtools/build/plan in it, got none on "
    ) as caught:
        build(source, tmp_path / "out", engine=engine)
    one_sentence(caught.value)


def test_machines_that_see_the_same_publish_the_same(source, build, digests, tmp_path):
    engine = Elsewhere(source / "0" / "00.bin", "never", None)
    build(source, tmp_path / "here")
    build(source, tmp_path / "there", engine=engine)
    assert digests(tmp_path / "there") == digests(tmp_path / "here")
