"""What the machine could do at most; stops a ceiling that comes from the page cache, covers other bytes than the trials read, or is a
number where there is no disk."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from shardtools.bench import ceilings
from shardtools.bench.ceilings import DiskCeiling, memcpy_gbps, probe
from shardtools.bench.counters.disk import DiskCounts
from shardtools.bench.counters.mounts import Mount
from shardtools.bench.not_measured import Unknown
from shardtools.bench.page_cache import PageCache
from shardtools.bench.spec import Layout

NUM_FILES, FILE_BYTES = 40, 10_000


@pytest.fixture
def data(tmp_path: Path) -> str:
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(NUM_FILES):
        (folder / f"{i:03d}.bin").write_bytes(os.urandom(FILE_BYTES))
    (folder / "empty.bin").touch()
    return str(folder)


@pytest.fixture
def on_disk(data: str) -> str:
    try:
        ceilings._require_direct(ceilings.files_of(data)[0])
    except Unknown as unknown:
        pytest.skip(f"no file can be read past the page cache here: {unknown}")
    if ceilings.is_memory(ceilings.mount_under(data, ceilings.Roots())):
        pytest.skip("temporary files are in memory here")
    return data


def test_files_are_read_from_the_disk_and_not_into_the_page_cache(on_disk: str) -> None:
    pages = PageCache.of(on_disk)
    before = pages.evict()
    if before.share is None:
        pytest.skip(f"what is in the page cache cannot be told here: {before.reason}")
    found = probe(Layout(on_disk, "files", "torch"), 2, seconds=1.0)
    assert found["disk_MBps"] > 0
    assert found["disk_iops"] > 0
    assert (found["pattern"], found["threads"], found["not_measured"]) == ("whole files in random order", 2, [])
    assert pages.residency().num_resident == before.num_resident


def test_every_file_is_read_once_and_whole(data: str) -> None:
    """In two threads, in another order for another seed; what is no whole block is read as one."""
    orders = []
    for seed in (0, 1):
        threads = ceilings._pieces(Layout(data, "files", "torch"), 2, seed)
        pieces = [list(thread) for thread in threads]
        assert [len(one) for one in pieces] == [20, 20]
        orders.append([path for one in pieces for path, _, _ in one])
        assert sorted(orders[-1]) == sorted(str(Path(data) / f"{i:03d}.bin") for i in range(NUM_FILES))
        assert {(begin, length) for one in pieces for _, begin, length in one} == {(0, 12288)}
    assert orders[0] != orders[1]


def test_shards_are_read_on_and_on(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    path.write_bytes(bytes(2_500_000))
    (pieces,) = ceilings._pieces(Layout(str(tmp_path), "wds", "webdataset"), 1, 0)
    assert list(pieces) == [(str(path), 0, 1 << 20), (str(path), 1 << 20, 1 << 20), (str(path), 2 << 20, 2_502_656 - (2 << 20))]


def test_lines_are_read_at_random_places(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' * 20_000)
    (pieces,) = ceilings._pieces(Layout(str(path), "jsonl", "torch"), 1, 0)
    places = [next(pieces) for _ in range(50)]
    assert {(name, length) for name, _, length in places} == {(str(path), 16384)}
    assert len({begin for _, begin, _ in places}) > 20
    assert all(begin % 4096 == 0 and begin + 16384 <= 180_224 for _, begin, _ in places)


def test_time_is_kept(on_disk: str) -> None:
    """Random places never end."""
    Path(on_disk, "a.jsonl").write_bytes(b"{}\n" * 50_000)
    found = ceilings._read(ceilings._pieces(Layout(f"{on_disk}/a.jsonl", "jsonl", "torch"), 2, 0), [f"{on_disk}/a.jsonl"], 0.2)
    assert found.mbps > 0


def test_rates_are_those_of_what_was_read(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads as long as the file says, of 100 ms each; the device counted 3 requests for each of them."""
    looks = iter([DiskCounts(100, 0, 0, 0, 0), DiskCounts(100 + 3 * NUM_FILES, 800, 1, 1, 1)])
    moments = iter([0.0, 4.0])

    class Reader:
        error = None

        def __init__(self, pieces: Any, until: float) -> None:
            read = [FILE_BYTES for _ in pieces]
            self.num_bytes, self.num_reads = sum(read), len(read)
            assert until == 9.0

        def start(self) -> None:
            pass

        join = start

    monkeypatch.setattr(ceilings, "_Reader", Reader)
    monkeypatch.setattr(ceilings, "_require_direct", lambda _: None)
    monkeypatch.setattr(ceilings, "is_memory", lambda _: False)
    monkeypatch.setattr(ceilings, "_device_look", lambda _: lambda: next(looks))
    monkeypatch.setattr("shardtools.bench.ceilings.time.perf_counter", lambda: next(moments))
    layout = Layout(data, "files", "torch")
    found = ceilings._read(ceilings._pieces(layout, 2, 0), [data], 9.0)
    assert found == DiskCeiling(NUM_FILES * FILE_BYTES / 4.0 / 1e6, 3 * NUM_FILES / 4.0)


def test_memory_is_no_disk(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "mount_under", lambda *_: Mount("0:1", "/", "/", "tmpfs", "tmpfs", ()))
    found = probe(Layout(data, "files", "torch"), 2, seconds=0.1)
    assert (found["disk_MBps"], found["disk_iops"]) == (None, None)
    assert found["host_memcpy_GBps"] > 0
    assert found["not_measured"] == [
        {"metric": "disk_MBps", "reason": "the files are on a file system in memory, which has no disk"},
        {"metric": "disk_iops", "reason": "the files are on a file system in memory, which has no disk"},
    ]


def test_a_file_system_without_direct_reads_is_told(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(ceilings, "is_memory", lambda _: False)
    with monkeypatch.context() as patch:
        patch.setattr("shardtools.bench.ceilings.os.open", refuse)
        with pytest.raises(Unknown, match="past the page cache"):
            ceilings._read([], ceilings.files_of(data), 0.1)


def test_data_elsewhere_has_no_disk_here() -> None:
    found = probe(Layout("s3://bucket/data", "wds", "shardtools"), 2, seconds=0.1)
    assert found["disk_MBps"] is None
    assert found["not_measured"][0] == {"metric": "disk_MBps", "reason": "there are no files on this machine"}


def test_memory_is_told_by_the_quickest_copy() -> None:
    """Three copies of 64 MiB, of 1.0, 0.5 and 2.0 s: 0.134 GB/s."""
    moments = iter([0.0, 0.0, 1.0, 1.0, 1.5, 1.5, 3.5])
    assert memcpy_gbps(3.0, lambda: next(moments)) == pytest.approx(0.134, rel=0.01)
