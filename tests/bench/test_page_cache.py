"""What is said to be evicted is evicted, and what is not is said: stops "cold" numbers from a warm cache.

The oracle is ``fincore`` of util-linux where it is installed, else mincore through a mapping made here.
"""

import ctypes
import mmap
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shardtools.bench.not_measured import Unknown
from shardtools.bench.page_cache import PageCache, resident
from shardtools.bench.page_cache.resident import Pages, by_cachestat, by_mincore
from shardtools.bench.places import files_of, place_of
from shardtools.errors import StorageError

PAGE = mmap.PAGESIZE
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is in its page cache")


def resident_pages(path: Path) -> int:
    """Not asked of the code under test."""
    if shutil.which("fincore"):
        told = subprocess.run(
            ["fincore", "--bytes", "--noheadings", "--output", "PAGES", str(path)], capture_output=True, text=True, check=True
        )
        return int(told.stdout.split()[0])
    size = path.stat().st_size
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as view:
        held = (ctypes.c_char * 1).from_buffer(view)
        found = (ctypes.c_ubyte * -(-size // PAGE))()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(held)), ctypes.c_size_t(size), found) == 0
        del held
        return sum(byte & 1 for byte in found)


def is_evictable(folder: Path) -> bool:
    told = subprocess.run(["df", "--output=fstype", str(folder)], capture_output=True, text=True, check=True).stdout.split()[-1]
    return told not in ("tmpfs", "ramfs", "zfs", "overlay")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if not is_evictable(tmp_path):
        pytest.skip("temporary files are on a file system whose pages cannot be evicted: point TMPDIR at a disk")
    return tmp_path


def put(path: Path, num_pages: int, rest: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(num_pages * PAGE + rest))
    return path


def test_files_just_written_are_evicted_though_they_are_dirty(folder: Path) -> None:
    files = [put(folder / "src" / f"{n}.bin", 40, 1) for n in range(3)] + [put(folder / "src" / "deep" / "er.bin", 1)]
    (folder / "src" / "empty").touch()
    assert sum(map(resident_pages, files)) == 3 * 41 + 1
    pages = PageCache.of(str(folder / "src"))
    assert (pages.residency().num_pages, pages.residency().num_resident) == (3 * 41 + 1, 3 * 41 + 1)
    left = pages.evict()
    assert (left.num_pages, left.num_resident, left.share, left.examples) == (124, 0, 0.0, ())
    assert sum(map(resident_pages, files)) == 0


def test_many_dirty_files_are_evicted(folder: Path) -> None:
    """Beyond a few they are cleaned all at once."""
    files = [put(folder / "src" / f"{n}", 2) for n in range(300)]
    assert PageCache.of(str(folder / "src")).evict().num_resident == 0
    assert sum(map(resident_pages, files)) == 0


def test_a_part_of_a_file_is_counted_as_a_part(folder: Path) -> None:
    path = put(folder / "x", 4096)
    pages = PageCache([str(path)])
    pages.evict()
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 10 * PAGE, 100 * PAGE)
        found = pages.residency()
        assert found.num_resident == resident_pages(path)
    assert 10 <= (found.num_resident or 0) < 4096
    assert found.share == (found.num_resident or 0) / 4096
    assert found.examples == (str(path),)


def test_warming_reads_everything(folder: Path) -> None:
    """Files far longer than what the kernel reads ahead."""
    files = [put(folder / "src" / f"{n}", 9000, 5) for n in range(2)]
    pages = PageCache.of(str(folder / "src"))
    pages.evict()
    assert pages.warm().share == 1.0
    assert sum(map(resident_pages, files)) == 2 * 9001


def test_mapped_pages_stay_and_are_told(folder: Path) -> None:
    path, other = put(folder / "src" / "held", 50), put(folder / "src" / "free", 50)
    pages = PageCache.of(str(folder / "src"))
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        assert sum(view[::PAGE]) >= 0
        left = pages.evict()
        assert (left.num_resident, left.share, left.examples) == (50, 0.5, (str(path),))
        assert (resident_pages(path), resident_pages(other)) == (50, 0)
    assert pages.evict().num_resident == 0


def test_both_ways_of_looking_agree_with_the_oracle(folder: Path) -> None:
    path = put(folder / "x", 2000, 7)
    fd = os.open(path, os.O_RDONLY)
    try:
        for num_read in (0, 1, 500, 2001):
            resident.Cleaner().clean(fd)
            resident.drop(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            os.pread(fd, num_read * PAGE, 0)
            told = resident_pages(path)
            assert by_mincore(fd) == Pages(2001, told, True)
            try:
                assert by_cachestat(fd) == Pages(2001, told, False)
            except Unknown as unknown:
                assert "this kernel has no cachestat" in str(unknown)
            assert told >= min(num_read, 2001)
    finally:
        os.close(fd)


def test_dirty_pages_are_known_to_be_dirty(folder: Path) -> None:
    path = put(folder / "x", 20)
    fd = os.open(path, os.O_RDONLY)
    try:
        try:
            assert by_cachestat(fd).is_dirty
        except Unknown:
            pytest.skip("this kernel has no cachestat")
        os.fsync(fd)
        assert not by_cachestat(fd).is_dirty
    finally:
        os.close(fd)


def test_many_dirty_files_are_cleaned_to_the_last(folder: Path) -> None:
    cleaner, files = resident.Cleaner(), [put(folder / f"{n}", 2) for n in range(40)]
    fds = [os.open(path, os.O_RDONLY) for path in files]
    try:
        for fd in fds:
            cleaner.clean(fd)
        assert not any(by_cachestat(fd).is_dirty for fd in fds)
    except Unknown:
        pytest.skip("this kernel has no cachestat")
    finally:
        for fd in fds:
            os.close(fd)


def no_cachestat(_: int) -> Pages:
    raise Unknown("this kernel has no cachestat")


def test_without_cachestat_mincore_looks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "by_cachestat", no_cachestat)
    path = put(folder / "x", 30)
    pages = PageCache([str(path)])
    assert (pages.residency().num_resident, pages.residency().method) == (30, "mincore")
    assert pages.evict().num_resident == 0
    assert resident_pages(path) == 0


def test_a_way_that_sees_no_page_just_read_is_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an overlay, whose files have no pages of their own, or on ZFS, which caches elsewhere."""
    blind: Callable[[int], Pages] = lambda _: Pages(30, 0, False)  # noqa: E731
    path = put(folder / "x", 30)
    monkeypatch.setattr(resident, "by_cachestat", blind)
    assert PageCache([str(path)]).residency().method == "mincore"
    monkeypatch.setattr(resident, "by_mincore", blind)
    found = PageCache([str(path)]).evict()
    assert (found.num_resident, found.share, found.method) == (None, None, "")
    assert "cachestat does not see a page that was just read; mincore does not" in found.reason
    assert resident_pages(path) == 0, "it is evicted all the same"


def test_an_overlay_is_seen_through(folder: Path) -> None:
    """On a real one, in a mount namespace of its own."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root can mount an overlay to look through")
    lower = folder / "lower"
    put(lower / "x", 64)
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir()
    code = (
        "import sys; from shardtools.bench.page_cache import PageCache\n"
        "pages = PageCache.of(sys.argv[1]); a = pages.warm(); b = pages.evict(); print(a.num_resident, b.num_resident, a.method)"
    )
    options = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work"
    script = 'mount -t overlay overlay -o "$1" "$2" || exit 77; exec "$3" -c "$4" "$2"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", options, str(folder / "merged"), sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(f"an overlay cannot be mounted here: {done.stderr.strip()}")
    assert done.stdout.split()[:2] == ["64", "0"], done.stderr
    assert resident_pages(lower / "x") == 0


def test_files_of_another_user_are_not_called_warm_or_cold(folder: Path) -> None:
    """Of these mincore says that all pages are there, whatever is."""
    if os.geteuid() != 0:
        pytest.skip("only root can look as another user")
    path = put(folder / "x", 30)
    fd = os.open(path, os.O_RDONLY)
    os.fchmod(fd, 0o444)
    said: list[str] = []

    def look() -> None:
        # Of this thread alone: the others stay root.
        assert ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(SETRESUID), 65534, 65534, 65534) == 0
        for way in (by_cachestat, by_mincore):
            try:
                said.append(str(way(fd)))
            except Unknown as unknown:
                said.append(str(unknown))

    SETRESUID = {"x86_64": 117, "aarch64": 147}.get(os.uname().machine, 0)  # noqa: N806
    if not SETRESUID:
        pytest.skip("the number of a system call is not known here")
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    os.close(fd)
    assert len(said) == 2
    assert all("another's and cannot be written" in sentence or "has no cachestat" in sentence for sentence in said)


def test_a_file_that_is_gone_is_an_error(folder: Path, one_sentence: Callable[[BaseException], str]) -> None:
    path = put(folder / "x", 3)
    pages = PageCache([str(path)])
    path.unlink()
    for act in (pages.residency, pages.evict, pages.warm):
        with pytest.raises(StorageError) as caught:
            act()
        assert str(path) in one_sentence(caught.value)


def test_files_behind_a_name(folder: Path) -> None:
    for name in ("d/a.tar", "d/b.tar", "d/c.txt", "d/.shardtools/build/staged", "d/sub/e.bin"):
        put(folder / name, 0, 5)
    (folder / "d" / "sub" / "loop").symlink_to(folder / "d")
    (folder / "d" / "gone").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "d" / "pipe")
    names = ["a.tar", "b.tar", "c.txt", "sub/e.bin"]
    assert files_of(str(folder / "d")) == [str(folder / "d" / name) for name in names]
    assert files_of(f"file://{folder}/d") == [str(folder / "d" / name) for name in names]
    assert files_of(str(folder / "d" / "c.txt")) == [str(folder / "d" / "c.txt")]
    assert files_of(f"{folder}/d/{{a,b}}.tar") == [str(folder / "d" / "a.tar"), str(folder / "d" / "b.tar")]
    assert files_of("s3://bucket/d") == []


def test_the_place_of_a_name(tmp_path: Path) -> None:
    assert place_of(str(tmp_path)) == str(tmp_path)
    assert place_of(f"file://{tmp_path}/none") == str(tmp_path)
    assert place_of(f"{tmp_path}/x-{{00..12}}.tar") == str(tmp_path)
    assert place_of("s3://bucket/d") is None
