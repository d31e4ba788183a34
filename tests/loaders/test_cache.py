"""Stops a cache that outgrows its limit, throws away what is in use or not its own, or takes half a file for a whole one."""

import errno
import hashlib
import os
import pickle
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from watching import open_below

pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it")

from shardtools.errors import DamagedShardError, StorageError
from shardtools.loaders import _cache, _cache_names
from shardtools.loaders._cache import ShardCache

pytestmark = pytest.mark.train


class Maker:
    """Makes files of one repeated byte, and remembers which."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, key: str, num_bytes: int) -> Callable[[str], None]:
        def make(path: str) -> None:
            assert not os.path.exists(path)
            self.made.append(key)
            Path(path).write_bytes(key[:1].encode("utf-8", "surrogatepass") * num_bytes)

        return make


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def stored(folder: Path, key: str) -> Path:
    start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return folder / (hashlib.sha256(f"{start}\0{key}".encode()).hexdigest() + ".shard")


def kept(folder: Path, keys: str) -> str:
    """Which of the keys are there; nothing else may be."""
    found = "".join(key for key in keys if stored(folder, key).exists())
    assert sorted(os.listdir(folder)) == sorted(stored(folder, key).name for key in found)
    return found


def use(cache: ShardCache, maker: Maker, key: str, num_bytes: int = 10) -> bytes:
    with cache.open(key, maker(key, num_bytes)) as file:
        return file.read()


def age(folder: Path, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(stored(folder, key), (then, then))


def test_a_file_is_made_once_under_the_digest_of_the_machines_start_and_its_key(folder, maker, monkeypatch):
    monkeypatch.setattr(_cache_names, "this_start", lambda: "start-1")
    cache = ShardCache(str(folder), 100)
    assert use(cache, maker, "s3://x/y\0train-000000.tar\x00123", 7) == b"sssssss"
    assert use(cache, maker, "s3://x/y\0train-000000.tar\x00123", 7) == b"sssssss"
    assert use(cache, maker, "other", 0) == b""
    assert maker.made == ["s3://x/y\0train-000000.tar\x00123", "other"]
    # What sha256sum says of the two, each behind `start-1` and a NUL.
    assert sorted(os.listdir(folder)) == [
        "2950b98d069830435f6395b194c7ecad4e3646db90119f126df6683817b32694.shard",
        "5a43630f2bd60c600b7a1a422d32e9325905e8f01c04d10a60080021fb341cda.shard",
    ]


def test_any_text_is_a_key_of_its_own(folder, maker):
    cache = ShardCache(str(folder), 100)
    keys = ["a", "A", "\udcff", "\ud800", "é", "e\u0301", "", "../a", "a\0"]
    for key in keys:
        use(cache, maker, key, 1)
    assert maker.made == keys and len(os.listdir(folder)) == len(keys)


def test_the_longest_unused_go_first(folder, maker):
    cache = ShardCache(str(folder), 40)
    for key, seconds in zip("abcd", (400, 300, 200, 100), strict=True):
        use(cache, maker, key)
        age(folder, key, seconds)
    assert kept(folder, "abcd") == "abcd"
    use(cache, maker, "a")
    use(cache, maker, "e")
    assert kept(folder, "abcde") == "acde"
    use(cache, maker, "f", 20)
    assert kept(folder, "abcdef") == "aef"
    assert maker.made == list("abcdef")


@pytest.mark.parametrize(("seconds", "is_touched"), [(30, False), (55, False), (65, True), (1e6, True), (-1e6, True)])
def test_a_use_is_noted_at_most_once_a_minute(folder, maker, seconds, is_touched):
    cache = ShardCache(str(folder), 100)
    use(cache, maker, "a")
    age(folder, "a", seconds)
    use(cache, maker, "a")
    off = time.time() - stored(folder, "a").stat().st_mtime
    assert abs(off) < 20 if is_touched else abs(off - seconds) < 20


def test_a_file_counts_as_used_when_it_was_made_whatever_time_its_maker_gave_it(folder):
    def make(path: str) -> None:
        Path(path).write_bytes(b"1")
        os.utime(path, (1, 1))

    ShardCache(str(folder), 100).open("a", make).close()
    assert abs(time.time() - stored(folder, "a").stat().st_mtime) < 20


def test_a_file_larger_than_the_limit_is_kept_alone(folder, maker):
    cache = ShardCache(str(folder), 25)
    for key in "ab":
        use(cache, maker, key)
    assert use(cache, maker, "c", 26) == b"c" * 26
    assert kept(folder, "abc") == "c"
    assert use(cache, maker, "c", 26) == b"c" * 26
    use(cache, maker, "d")
    assert kept(folder, "abcd") == "d"
    assert maker.made == list("abcd")


def test_the_limit_itself_still_fits(folder, maker):
    cache = ShardCache(str(folder), 30)
    for key in "abc":
        use(cache, maker, key)
    assert kept(folder, "abc") == "abc"


def test_each_insertion_holds_its_own_limit(folder, maker):
    large, small = ShardCache(str(folder), 100), ShardCache(str(folder), 20)
    for i, key in enumerate("abcde"):
        use(large, maker, key)
        age(folder, key, 500 - 100 * i)
    for key in "abcde":  # finding evicts nothing
        use(small, maker, key)
        age(folder, key, 500)
    assert kept(folder, "abcde") == "abcde"
    age(folder, "e", 100)
    use(small, maker, "f")
    assert kept(folder, "abcdef") == "ef"
    use(large, maker, "g")
    assert kept(folder, "abcdefg") == "efg"


def test_any_course_of_use_keeps_what_a_list_of_last_uses_says(folder, maker):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    numbers = random.Random(seed)
    limit = 100
    cache = ShardCache(str(folder), limit)
    sizes = {key: numbers.choice([0, 1, 9, 20, 40, 99, 130]) for key in "abcdefghijkl"}
    expected: list[str] = []  # the longest unused first
    clock = 1_000_000
    for _ in range(200):
        key = numbers.choice(list(sizes))
        was_there = key in expected
        assert stored(folder, key).exists() == was_there
        assert use(cache, maker, key, sizes[key]) == key.encode() * sizes[key]
        clock += 100
        os.utime(stored(folder, key), (clock, clock))
        if was_there:
            expected.remove(key)
        else:
            while expected and sum(sizes[k] for k in expected) + sizes[key] > limit:
                expected.pop(0)
        expected.append(key)
        assert sorted(kept(folder, "".join(sizes))) == sorted(expected)


def test_what_is_open_can_be_read_on_after_it_was_evicted(folder, maker):
    cache = ShardCache(str(folder), 10)
    with cache.open("a", maker("a", 10)) as file:
        use(cache, maker, "b")
        assert kept(folder, "ab") == "b"
        assert file.read() == b"a" * 10
    assert use(cache, maker, "a") == b"a" * 10
    assert maker.made == ["a", "b", "a"]


def test_what_somebody_deleted_is_made_anew(folder, maker):
    cache = ShardCache(str(folder), 100)
    use(cache, maker, "a")
    stored(folder, "a").unlink()
    assert use(cache, maker, "a") == b"a" * 10
    stored(folder, "a").unlink()
    folder.rmdir()
    assert use(cache, maker, "a") == b"a" * 10
    assert maker.made == ["a", "a", "a"]


def test_what_others_evict_before_it_is_opened_was_opened_already(folder, maker, monkeypatch):
    """A cache that opens by name after it has made would make for ever where others evict at once."""
    real = os.replace

    def replace(part: str, path: str) -> None:
        real(part, path)
        os.unlink(path)

    monkeypatch.setattr(os, "replace", replace)
    assert use(ShardCache(str(folder), 100), maker, "a") == b"a" * 10
    assert maker.made == ["a"]


def test_a_folder_emptied_under_a_maker_is_a_sentence_and_nobody_gets_half_a_file(folder, one_sentence):
    cache = ShardCache(str(folder), 100)
    began, go_on = threading.Event(), threading.Event()
    failed: list[StorageError] = []

    def slow(path: str) -> None:
        Path(path).write_bytes(b"first")
        began.set()
        go_on.wait(20)

    def run() -> None:
        try:
            cache.open("a", slow).close()
        except StorageError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    began.wait(20)
    for entry in folder.iterdir():
        entry.unlink()

    def second(path: str) -> None:
        Path(path).write_bytes(b"sec")
        go_on.set()
        thread.join(20)
        assert not stored(folder, "a").exists()
        Path(path).write_bytes(b"second")

    with cache.open("a", second) as file:
        assert file.read() == b"second"
    assert str(folder) in one_sentence(failed[0])
    assert kept(folder, "a") == "a"


FOREIGN = [
    "train-000000.tar",
    "index.json",
    "0" * 64,
    "0" * 63 + ".shard",
    "A" * 64 + ".shard",
    "0" * 64 + ".shard.gz",
    "0" * 64 + ".shard.shard",
    "0" * 64 + ".lock.part",
    "x" + "0" * 64 + ".shard",
    "0" * 64 + ".shard\n",
    "0" * 64 + ".part",
    "0" * 64 + ".012.part",
    ".hidden",
]


def test_nothing_but_its_own_files_is_ever_deleted(folder, tmp_path, maker):
    folder.mkdir()
    for name in FOREIGN:
        (folder / name).write_bytes(b"x" * 1000)
        os.utime(folder / name, (1, 1))
    original = tmp_path / "original"
    original.write_bytes(b"only copy")
    for digit, suffix in zip("1234", (".shard", ".lock", ".0123456789abcdef.part", ".shard"), strict=True):
        (folder / (digit * 64 + suffix)).symlink_to(original)
    (folder / ("5" * 64 + ".shard")).mkdir()
    (folder / ("5" * 64 + ".shard") / "x").write_bytes(b"x")
    before = set(os.listdir(folder))
    cache = ShardCache(str(folder), 1)
    for key in "abc":
        use(cache, maker, key)
    assert set(os.listdir(folder)) - before == {stored(folder, "c").name}
    assert before <= set(os.listdir(folder))
    assert original.read_bytes() == b"only copy"


def test_what_the_dead_left_is_removed_by_the_next_insertion(folder, maker):
    """Of its own key, of others, and locks alone."""
    cache = ShardCache(str(folder), 1000)
    use(cache, maker, "a")
    for key, names in {"b": (".0123456789abcdef.part", ".lock"), "c": (".lock",), "d": (".fedcba9876543210.part",)}.items():
        for name in names:
            stored(folder, key).with_suffix(name).write_bytes(b"x" * 1001)
    (folder / "shardtools-cache.lock").touch()
    assert use(cache, maker, "a") == b"a" * 10  # finding removes nothing
    assert len(os.listdir(folder)) == 6
    use(cache, maker, "b")
    assert kept(folder, "abcd") == "ab"


def test_a_lock_that_is_somebodys_again_stays(folder, maker, monkeypatch):
    """Between the look at what a dead one left and its removal another may begin, and would then not keep a third one out."""
    cache = ShardCache(str(folder), 100)
    use(cache, maker, "a")
    stored(folder, "b").with_suffix(".lock").touch()
    real = _cache._is_held

    def is_held(lock: str) -> bool:
        found = real(lock)
        Path(lock).touch()
        return found

    monkeypatch.setattr(_cache, "_is_held", is_held)
    use(cache, maker, "c")
    assert stored(folder, "b").with_suffix(".lock").exists()


FAULTS = {
    "damaged": DamagedShardError("the stream ends", 7),
    "refused": StorageError("one sentence"),
    "other": ValueError("x"),
    "interrupted": KeyboardInterrupt(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_makers_fault_is_its_own_and_leaves_nothing(folder, maker, fault):
    cache = ShardCache(str(folder), 100)
    use(cache, maker, "a")

    def make(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise FAULTS[fault]

    with pytest.raises(type(FAULTS[fault])) as caught:
        cache.open("b", make)
    assert caught.value is FAULTS[fault]
    assert kept(folder, "ab") == "a"
    assert use(cache, maker, "b") == b"b" * 10


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "free some space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "smaller cache_bytes"),
        (OSError(errno.EROFS, "Read-only file system"), "can be written"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "can be read"),
        (OSError("no number"), "no number"),
    ],
)
def test_what_the_system_refuses_is_one_sentence_and_leaves_nothing(folder, maker, error, remedy, one_sentence):
    def make(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise error

    cache = ShardCache(str(folder), 100)
    with pytest.raises(StorageError) as caught:
        cache.open("a", make)
    text = one_sentence(caught.value)
    assert str(folder) in text and (error.strerror or str(error)) in text and remedy in text and "cache_folder" in text
    assert kept(folder, "a") == ""
    assert use(cache, maker, "a") == b"a" * 10


def test_a_full_disk_is_one_sentence_and_what_was_there_stays(small_disk, maker, one_sentence):
    folder = small_disk(400)
    cache = ShardCache(str(folder), 1 << 30)
    use(cache, maker, "a", 100_000)
    with pytest.raises(StorageError) as caught:
        use(cache, maker, "b", 600_000)
    text = one_sentence(caught.value)
    assert os.strerror(errno.ENOSPC) in text and "free some space" in text and str(folder) in text
    assert kept(folder, "ab") == "a"
    assert use(cache, maker, "b", 100_000) == b"b" * 100_000


def test_a_disk_without_room_for_a_name_is_one_sentence(folder, monkeypatch, maker, one_sentence):
    cache = ShardCache(str(folder), 100)
    use(cache, maker, "a")

    def refuse(path: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refuse)
    assert use(cache, maker, "a") == b"a" * 10  # what is there needs no lock
    with pytest.raises(StorageError) as caught:
        use(cache, maker, "b")
    assert "Permission denied" in one_sentence(caught.value) and "can be written" in str(caught.value)


@pytest.mark.parametrize("action", ["replace", "unlink", "fsync", "scandir"])
def test_each_step_the_disk_may_refuse_is_one_sentence_with_nothing_left_open(folder, monkeypatch, maker, action, one_sentence):
    monkeypatch.setattr(_cache, "this_start", lambda: "")
    cache = ShardCache(str(folder), 10)
    use(cache, maker, "a")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, action, refuse)
    with pytest.raises(StorageError) as caught:
        use(cache, maker, "b")
    monkeypatch.undo()
    # While the error, and with it every frame, is still there.
    assert open_below(folder) == []
    assert str(folder) in one_sentence(caught.value) and os.strerror(errno.EIO) in str(caught.value)
    use(cache, maker, "c")
    assert kept(folder, "abc") == "c"


@pytest.mark.parametrize("below", ["file", "file/deeper", ""])
def test_a_folder_that_cannot_be_is_one_sentence(tmp_path, maker, below, one_sentence):
    (tmp_path / "file").write_bytes(b"x")
    folder = str(tmp_path / below) if below else ""
    with pytest.raises(StorageError) as caught:
        use(ShardCache(folder, 100), maker, "a")
    assert folder in one_sentence(caught.value) and "cache_folder" in str(caught.value)
    assert maker.made == []


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"shardtools-cache-{os.getuid()}"


def test_the_folder_nobody_named_is_its_users_alone(own_folder, maker):
    before = os.umask(0)
    try:
        use(ShardCache(None, 100), maker, "a")
        use(ShardCache(None, 100), maker, "a")
    finally:
        os.umask(before)
    assert maker.made == ["a"] and kept(own_folder, "a") == "a"
    assert own_folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("what", ["link", "broken link", "file", "open to others", "another's"])
def test_the_folder_nobody_named_is_refused_where_others_may_have_made_it(own_folder, tmp_path, maker, what, one_sentence):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    if what == "link":
        own_folder.symlink_to(tmp_path / "elsewhere")
    elif what == "broken link":
        own_folder.symlink_to(tmp_path / "nothing")
    elif what == "file":
        own_folder.write_bytes(b"x")
    elif what == "open to others":
        own_folder.mkdir()
        own_folder.chmod(0o770)
    else:
        if os.getuid() != 0:
            pytest.skip("only root can make a folder of another user's")
        own_folder.mkdir(mode=0o700)
        os.chown(own_folder, 65534, 65534)
    with pytest.raises(StorageError) as caught:
        use(ShardCache(None, 100), maker, "a")
    assert str(own_folder) in one_sentence(caught.value) and "cache_folder" in str(caught.value)
    assert maker.made == [] and os.listdir(tmp_path / "elsewhere") == []
    assert not (tmp_path / "nothing").exists()


def test_it_is_a_plain_value_with_nothing_open(folder, maker):
    cache = ShardCache(str(folder), 100)
    use(cache, maker, "a")
    again = pickle.loads(pickle.dumps(cache))
    assert again == cache and hash(again) == hash(cache) and vars(again) == {"folder": str(folder), "limit_bytes": 100, "ahead_bytes": 0}
    assert use(again, maker, "a") == b"a" * 10 and maker.made == ["a"]


def test_no_descriptor_is_left_open(folder, maker):
    def fail(path: str) -> None:
        raise ValueError(path)

    cache = ShardCache(str(folder), 25)
    for key in "abcabca":
        use(cache, maker, key)
        with pytest.raises(ValueError, match="part"):
            cache.open("z", fail)
        with pytest.raises(StorageError):
            cache.open("z", lambda _: None)  # makes nothing
    assert open_below(folder) == []


def test_a_file_of_before_a_restart_is_made_anew_and_goes_first(folder, maker, monkeypatch):
    """A loss of power leaves names whose bytes never came to the disk."""
    cache = ShardCache(str(folder), 15)
    use(cache, maker, "a")
    (left,) = folder.iterdir()
    left.write_bytes(bytes(10))
    monkeypatch.setattr(_cache_names, "this_start", lambda: "another start")
    assert use(cache, maker, "a") == b"a" * 10
    assert maker.made == ["a", "a"]
    assert not left.exists()


def test_a_file_has_its_bytes_on_the_disk_before_its_name_where_starts_are_not_told_apart(folder, maker, monkeypatch):
    monkeypatch.setattr(_cache, "this_start", lambda: "")
    events: list[str] = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("sync " + os.readlink(f"/proc/self/fd/{fd}")[-5:]), real_sync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda *a: (events.append("rename"), real_replace(*a))[1])
    use(ShardCache(str(folder), 100), maker, "a")
    assert events == ["sync .part", "rename"]


def test_threads_that_ask_at_once_make_a_file_once(folder, maker):
    cache = ShardCache(str(folder), 100)
    barrier = threading.Barrier(8)
    found: list[bytes] = []

    def ask() -> None:
        barrier.wait()
        found.append(use(cache, maker, "a", 50))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"a" * 50] * 8 and maker.made == ["a"]
