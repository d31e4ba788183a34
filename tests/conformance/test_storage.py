"""Stops a storage that shows readers half an object, loses one, or cannot be asked twice. Holds for every storage there is."""

import hashlib
import random
import threading
import time

import pytest

from shardtools.errors import StorageError, UsageError
from shardtools.storage import Storage, open_storage


def write(storage: Storage, name: str, *pieces: bytes) -> None:
    writer = storage.writer(name)
    for piece in pieces:
        writer.write(piece)
    writer.finish()


def test_what_was_put_is_there(storage):
    storage.put("a/b/c", b"123")
    assert storage.get("a/b/c") == b"123"
    assert storage.num_bytes("a/b/c") == 3
    storage.put("a/b/c", b"")
    assert storage.get("a/b/c") == b"" and storage.num_bytes("a/b/c") == 0


def test_what_is_not_there_is_none(storage):
    assert storage.get("x") is None and storage.num_bytes("x") is None and storage.entry("x") is None
    storage.put("x/y", b"1")
    assert storage.get("x/z") is None and storage.num_bytes("x") is None
    assert storage.get("x/y/z") is None and storage.num_bytes("x/y/z") is None
    assert list(storage.names()) == ["x/y"]


def test_only_one_create_succeeds(storage):
    assert storage.create("plan", b"one") is True
    assert storage.create("plan", b"two") is False
    assert storage.get("plan") == b"one"
    assert list(storage.names()) == ["plan"]


def test_of_many_creates_at_once_exactly_one_succeeds_and_its_bytes_stay(storage):
    for attempt in range(10 if storage.is_local else 2):
        barrier = threading.Barrier(8)
        won: list[int] = []

        def race(i: int, attempt: int = attempt, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            if storage.create(f"plan{attempt}", b"%d" % i * 1000):
                won.append(i)

        threads = [threading.Thread(target=race, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.get(f"plan{attempt}") == b"%d" % won[0] * 1000


def test_a_reader_never_sees_a_part_of_a_put(storage):
    values = [bytes([i]) * 300_000 for i in (65, 66)]
    storage.put("x", values[0])
    stop = threading.Event()

    def replace() -> None:
        i = 0
        while not stop.is_set():
            storage.put("x", values[i % 2])
            i += 1

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            assert storage.get("x") in values
    finally:
        stop.set()
        thread.join()
    assert list(storage.names()) == ["x"]


def test_a_writer_makes_an_object_of_its_pieces(storage):
    numbers = random.Random(1)
    pieces = [numbers.randbytes(numbers.randint(0, 100_000)) for _ in range(20)]
    write(storage, "tmp/x", *pieces)
    assert storage.get("tmp/x") == b"".join(pieces)
    write(storage, "tmp/empty")
    assert storage.get("tmp/empty") == b""


def test_an_aborted_writer_leaves_nothing(storage):
    writer = storage.writer("tmp/x")
    writer.write(b"123")
    writer.abort()
    writer.abort()
    assert storage.get("tmp/x") is None and list(storage.names()) == []
    finished = storage.writer("tmp/y")
    finished.finish()
    finished.abort()
    assert storage.get("tmp/y") is None


def test_a_move_replaces_and_can_be_repeated(storage):
    storage.put("a/old", b"1")
    storage.put("b/c/new", b"2")
    storage.move("a/old", "b/c/new")
    storage.move("a/old", "b/c/new")
    assert storage.get("b/c/new") == b"1" and storage.get("a/old") is None
    storage.put("a/old", b"3")
    storage.move("a/old", "somewhere/deeper/x")
    assert storage.get("somewhere/deeper/x") == b"3"


def test_a_move_of_nothing_to_nothing_is_an_error(storage, one_sentence):
    with pytest.raises(StorageError) as caught:
        storage.move("a/old", "b/new")
    assert "b/new" in one_sentence(caught.value)


def test_a_delete_takes_objects_and_folders_and_can_be_repeated(storage):
    for name in ("a/1", "a/b/2", "ab/3", "c"):
        storage.put(name, b"x")
    for _ in range(2):
        storage.delete("a")
        storage.delete("c")
        storage.delete("never")
        storage.delete("never/there")
    assert list(storage.names()) == ["ab/3"]


def test_two_deletes_at_once_of_one_folder_both_succeed(storage):
    for attempt in range(5 if storage.is_local else 1):
        for i in range(60 if storage.is_local else 20):
            storage.put(f"{attempt}/{i % 7}/{i}", b"x")
        failed: list[BaseException] = []

        def remove(attempt: int = attempt, failed: list[BaseException] = failed) -> None:
            try:
                storage.delete(str(attempt))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=remove) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert list(storage.names(str(attempt))) == []


def test_names_are_all_below_a_prefix(storage):
    names = {"a", "b/c", "b/d/e", "bb/f", ".shardtools/build/plan", "é ü/_"}
    for name in names:
        storage.put(name, b"x")
    assert set(storage.names()) == names
    assert set(storage.names("b")) == {"b/c", "b/d/e"}
    assert set(storage.names("nothing")) == set()


def test_an_empty_storage_has_no_names(storage):
    assert list(storage.names()) == []


def test_the_digest_is_sha256_of_the_bytes(storage):
    data = random.Random(2).randbytes(3_000_001)
    storage.put("x", data)
    assert storage.sha256("x") == hashlib.sha256(data).hexdigest()
    storage.put("empty", b"")
    assert storage.sha256("empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_digest_of_nothing_is_an_error(storage, one_sentence):
    with pytest.raises(StorageError) as caught:
        storage.sha256("nothing")
    assert "nothing" in one_sentence(caught.value)


def test_the_time_of_an_object_is_when_it_was_stored(storage):
    before = time.time_ns()
    storage.put("x", b"1")
    found = storage.entry("x")
    assert found is not None and abs(found.modified_ns - before) < 60 * 10**9


def test_a_whole_object_is_fetched_into_a_new_file(storage, tmp_path):
    data = random.Random(3).randbytes(2_500_001)
    for name, value in {"a/x": data, "empty": b""}.items():
        storage.put(name, value)
        path = tmp_path / name.replace("/", "-")
        assert storage.fetch(name, str(path)) is None
        assert path.read_bytes() == value
        assert storage.get(name) == value


@pytest.mark.parametrize("name", ["nothing", "a", "a/x/y", "../x", "/etc/hostname", ""])
def test_what_is_no_object_cannot_be_fetched(storage, tmp_path, name, one_sentence):
    storage.put("a/x", b"123")
    with pytest.raises(StorageError) as caught:
        storage.fetch(name, str(tmp_path / "new"))
    assert name in one_sentence(caught.value)


def test_a_place_that_cannot_be_written_is_a_sentence(storage, tmp_path, one_sentence):
    storage.put("a/x", b"123")
    with pytest.raises(StorageError) as caught:
        storage.fetch("a/x", str(tmp_path / "missing" / "new"))
    assert "missing" in one_sentence(caught.value)


def test_an_object_can_be_mapped_at_its_local_path(storage):
    storage.put("a/x", b"123")
    if not storage.is_local:
        return
    with open(storage.local_path("a/x"), "rb") as file:
        assert file.read() == b"123"


def test_a_uri_opens_the_same_storage_again(storage):
    storage.put("x", b"1")
    assert open_storage(storage.uri).get("x") == b"1"


def test_a_scheme_nobody_serves_is_wrong_use(one_sentence):
    with pytest.raises(UsageError) as caught:
        open_storage("gopher://x/y")
    assert "gopher://x/y" in one_sentence(caught.value) and "s3://bucket/prefix" in str(caught.value)
