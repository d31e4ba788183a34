"""Stops a storage that gives other bytes than were asked for at the edges of an object, or names it cannot give again."""

import hashlib
import io
import os
import random
import threading
import time
from pathlib import Path

import pytest

from shardtools.errors import StorageError
from shardtools.storage import Storage, open_storage

DATA = random.Random(4).randbytes(1_000_003)
ODD_NAMES = (
    "a b/c+d",
    "100%/50%25",
    "key=value/x=1",
    "ümlaut/日本/🎈",
    "q?x=1&y=2#z",
    "semi;colon,comma",
    "'quotes\"",
    "~tilde!*()",
    "dot./.hidden/..two",
    " leading and trailing ",
    "<xml>&amp;",
)

LINE_BREAK = "line\nbreak"


@pytest.mark.parametrize("begin, num_bytes", [(0, 0), (0, 1), (0, 1_000_003), (1_000_002, 1), (1_000_003, 0), (7, 999_000)])
def test_a_part_is_read_into_a_buffer(storage, begin, num_bytes):
    storage.put("x", DATA)
    buffer = bytearray(b"?" * (num_bytes + 2))
    storage.read_into("x", memoryview(buffer)[1:-1], begin)
    assert buffer == b"?" + DATA[begin : begin + num_bytes] + b"?"


@pytest.mark.parametrize("begin, num_bytes", [(0, 1_000_004), (1_000_003, 1), (5_000_000, 1)])
def test_a_part_beyond_the_end_is_an_error(storage, begin, num_bytes, one_sentence):
    storage.put("x", DATA)
    with pytest.raises(StorageError) as caught:
        storage.read_into("x", memoryview(bytearray(num_bytes)), begin)
    assert "1000003" in one_sentence(caught.value) and "x" in str(caught.value)


def test_an_open_object_is_read_and_sought_as_a_file(storage):
    storage.put("x", DATA)
    numbers, like = random.Random(5), io.BytesIO(DATA)
    with storage.open("x") as file:
        assert file.readable() and file.seekable()
        for _ in range(60):
            if numbers.random() < 0.4:
                at = numbers.choice([0, numbers.randrange(1_000_003), 1_000_003, 1_000_100])
                assert file.seek(at) == like.seek(at)
            wanted = numbers.choice([0, 1, 100, 70_000])
            assert read_fully(file, wanted) == like.read(wanted)
            assert file.tell() == like.tell()
        file.seek(-5, io.SEEK_END)
        assert read_fully(file, 100) == DATA[-5:]
        file.seek(-3, io.SEEK_CUR)
        assert read_fully(file, 1) == DATA[-3:-2]
        file.seek(0)
        assert file.read() == DATA


def read_fully(file, num_bytes: int) -> bytes:
    """What an unbuffered file gives until it has that many or ends."""
    taken = b""
    while len(taken) < num_bytes and (piece := file.read(num_bytes - len(taken))):
        taken += piece
    return taken


@pytest.mark.parametrize("until", [0, 1, 500_000, 1_000_003, 2_000_000])
def test_an_object_that_is_read_beyond_where_it_was_thought_to_be_is_whole(storage, until):
    storage.put("x", DATA)
    with storage.open("x", until) as file:
        assert file.read() == DATA


def test_an_open_empty_object_is_empty(storage):
    storage.put("x", b"")
    with storage.open("x") as file:
        assert file.read() == b"" and file.read(5) == b"" and file.seek(0, io.SEEK_END) == 0


def test_what_is_not_there_cannot_be_opened_or_read(storage, one_sentence):
    for call in (lambda: storage.open("no"), lambda: storage.read_into("no", memoryview(bytearray(1)))):
        with pytest.raises(StorageError) as caught:
            call()
        assert "no" in one_sentence(caught.value)


def test_odd_names_are_listed_as_they_were_stored(storage):
    for i, name in enumerate(ODD_NAMES):
        storage.put(name, b"%d" % i)
    assert sorted(storage.names()) == sorted(ODD_NAMES)
    for i, name in enumerate(ODD_NAMES):
        assert storage.get(name) == b"%d" % i and storage.num_bytes(name) == len(b"%d" % i)
        assert storage.move(name, f"moved/{name}") is True
        assert storage.get(f"moved/{name}") == b"%d" % i
    assert sorted(storage.names("moved")) == sorted(f"moved/{name}" for name in ODD_NAMES)
    storage.delete("moved")
    assert list(storage.names()) == []


def test_a_name_with_a_line_break_is_stored_or_refused_in_one_line(storage, one_sentence):
    """moto has no way to such a key."""
    try:
        storage.put(LINE_BREAK, b"1")
        assert list(storage.names()) == [LINE_BREAK] and storage.get(LINE_BREAK) == b"1"
    except StorageError as error:
        assert "line\\nbreak" in one_sentence(error)


def test_an_entry_says_what_a_listing_says(storage):
    before = time.time_ns()
    for name in ("a", "b/c"):
        storage.put(name, DATA[:1000])
    listed = {entry.name: entry for entry in storage.entries()}
    assert listed.keys() == {"a", "b/c"}
    for name, entry in listed.items():
        assert entry == storage.entry(name)
        assert entry.num_bytes == 1000 and abs(entry.modified_ns - before) < 60 * 10**9
    storage.put("a", DATA[1000:2000])
    assert storage.entry("a").version != listed["a"].version
    assert storage.entry("no") is None


def test_the_version_of_what_was_written_is_known_or_empty(storage):
    writer = storage.writer("x")
    writer.write(DATA)
    writer.finish()
    assert writer.version in ("", storage.entry("x").version)


def test_what_is_no_object_has_no_entry(storage):
    storage.put("folder/x", b"1")
    for name in ("folder", "folder/x/y", "no"):
        assert storage.entry(name) is None


def test_what_was_placed_is_there_and_the_source_may_be(storage, one_sentence):
    storage.put("a", DATA)
    storage.put("b/c", b"other")
    assert storage.place("a", "b/c") is True
    assert storage.get("b/c") == DATA and storage.get("a") in (DATA, None)
    storage.delete("a")
    assert storage.place("a", "b/c") is False
    assert storage.get("b/c") == DATA
    with pytest.raises(StorageError) as caught:
        storage.place("a", "nowhere")
    assert "nowhere" in one_sentence(caught.value)


def test_an_object_of_another_root_is_adopted_whole_or_not_at_all(storage, one_sentence):
    other = open_storage(f"{storage.uri}-other")
    other.put("a/x y", DATA)
    listed = other.entry("a/x y")
    is_adopted = storage.adopt(other.uri, listed, "b/c")
    assert storage.get("b/c") == (DATA if is_adopted else None)
    assert other.get("a/x y") == DATA
    other.put("a/x y", b"another")
    if is_adopted:
        with pytest.raises(StorageError) as caught:
            storage.adopt(other.uri, listed, "b/d")
        assert "a/x y" in one_sentence(caught.value)
    assert storage.get("b/d") is None
    assert storage.adopt("elsewhere://bucket/x", listed, "b/e") is False and storage.get("b/e") is None


def test_whole_objects_come_in_the_order_in_which_they_were_asked_for(storage):
    sizes = {"a": 1, "b/empty": 0, "c d+%": 70_000, "large": 9_000_001}
    for name, num_bytes in sizes.items():
        storage.put(name, bytes(num_bytes))
    wanted = [("large", 9_000_001), ("a", 1), ("no", 5), ("b/empty", 0), ("c d+%", 69_999), ("large", 7), ("a", 1), ("c d+%", 70_000)]
    found = list(storage.wholes(iter(wanted)))
    assert [whole and (len(whole.data), whole.num_bytes) for whole in found] == [
        (9_000_001, 9_000_001),
        (1, 1),
        None,
        (0, 0),
        (0, 70_000),
        (0, 9_000_001),
        (1, 1),
        (70_000, 70_000),
    ]
    for (name, _), whole in zip(wanted, found, strict=True):
        assert whole is None or whole.version == storage.entry(name).version


def test_whole_objects_are_asked_for_no_further_than_they_are_taken(storage):
    for i in range(4):
        storage.put(str(i), b"%d" % i)
    asked = []

    def names():
        for i in range(100_000):
            asked.append(i)
            yield str(i % 4), 1

    coming = storage.wholes(names())
    assert [next(coming).data for _ in range(3)] == [b"0", b"1", b"2"]
    coming.close()
    assert len(asked) < 1000


@pytest.mark.parametrize("how", ["open", "fetch"])
def test_an_object_that_was_replaced_since_it_was_listed_is_refused(storage, tmp_path, how, one_sentence):
    storage.put("a/x", b"first")
    listed = {entry.name: entry.version for entry in storage.entries()}["a/x"]
    assert read_version(storage, how, listed, tmp_path / "1") == b"first"
    storage.put("a/x", b"other")
    with pytest.raises(StorageError) as caught:
        read_version(storage, how, listed, tmp_path / "2")
    assert "a/x" in one_sentence(caught.value)
    assert not (tmp_path / "2").exists()


def read_version(storage: Storage, how: str, version: str, path: Path) -> bytes:
    if how == "open":
        with storage.open("a/x", version=version) as file:
            return file.read()
    storage.fetch("a/x", str(path), version)
    return path.read_bytes()


def test_unfinished_writers_show_nothing_and_can_be_discarded(storage):
    writer = storage.writer("tmp/x")
    writer.write(DATA)
    storage.put("tmp/y", b"1")
    storage.discard_unfinished("tmp")
    assert storage.get("tmp/y") == b"1"
    writer.abort()
    assert list(storage.names()) == ["tmp/y"]


def test_many_threads_use_one_storage_at_once(storage):
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for i in range(10):
                data = DATA[: thread * 1000 + i]
                storage.put(f"{thread}/{i}", data)
                assert storage.get(f"{thread}/{i}") == data
                assert storage.sha256(f"{thread}/{i}") == hashlib.sha256(data).hexdigest()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(list(storage.names())) == 80


def test_a_forked_process_uses_the_storage_of_its_parent(storage: Storage):
    storage.put("parent", b"1")
    children = [fork_and_write(storage, i) for i in range(3)]
    storage.put("parent", b"2")
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert {name: storage.get(name) for name in storage.names()} == {"parent": b"2", "child0": b"0", "child1": b"1", "child2": b"2"}


def fork_and_write(storage: Storage, i: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            storage.put(f"child{i}", b"%d" % i)
            os._exit(0 if storage.get("parent") in (b"1", b"2") else 1)
        except BaseException:
            os._exit(2)
    return child
