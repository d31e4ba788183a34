"""Stops errors of the machine that are counted as bad samples, and reads that hang or leak."""

import errno
import os

import pytest
from watching import open_below

from shardtools.build.run import Listener
from shardtools.errors import StorageError
from shardtools.sources._streams import Window, opened
from shardtools.sources.files import Files
from shardtools.sources.jsonl import Jsonl


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", ["open", "read"])
def test_an_error_of_the_machine_is_no_bad_sample(tree, build, tmp_path, monkeypatch, one_sentence, code, call):
    source = tree({"a.txt": b"1", "b.txt": b"2"})
    real = getattr(os, call)
    failing = False

    def fail(target, *arguments, **options):
        named = target if call == "open" else os.fsencode(os.readlink(f"/proc/self/fd/{target}"))
        if failing and os.fsencode(named).endswith(b"b.txt"):
            raise OSError(code, os.strerror(code))
        return real(target, *arguments, **options)

    def begin(_):
        nonlocal failing
        failing = True

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StorageError) as caught:
        build(source, tmp_path / "out", listener=Listener(on_plan=begin), max_bad="100%")
    sentence = one_sentence(caught.value)
    assert "could not read b.txt" in sentence and os.strerror(code) in sentence


def test_a_root_that_vanished_is_named_and_leaves_no_descriptor(tree, plan, one_sentence, tmp_path):
    """The first root is there: its descriptor must not stay open for the second that is not."""
    planned = plan([tree({"a.txt": b"1"}, "one"), tree({"b.txt": b"2"}, "two")])
    source = planned.plan.recipe.source
    assert isinstance(source, Files)
    roots = [planned.roots[0], planned.roots[1] + "-gone"]
    with pytest.raises(StorageError, match=r"could not open .*-gone: No such file") as caught:
        list(source.read(roots, planned.plan.partitions[0].extents, lambda _: None))
    one_sentence(caught.value)
    assert open_below(tmp_path) == []


def test_a_fifo_in_the_place_of_a_planned_file_of_lines_does_not_hang(tmp_path, build, one_sentence):
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_bytes(b'{"a": 1}\n')

    def replace(_):
        os.unlink(source / "a.jsonl")
        os.mkfifo(source / "a.jsonl")

    with pytest.raises(StorageError, match=r"expected a\.jsonl to be the regular file") as caught:
        build(source, tmp_path / "out", source=Jsonl(), listener=Listener(on_plan=replace))
    one_sentence(caught.value)


def test_a_read_of_lines_that_fails_says_which_file(tmp_path, one_sentence):
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n')
    with (
        pytest.raises(StorageError, match=r"could not read a\.jsonl: Input/output error") as caught,
        opened(str(tmp_path), Window(b"a.jsonl", 0, -1, 9)),
    ):
        raise OSError(errno.EIO, "Input/output error")
    one_sentence(caught.value)
