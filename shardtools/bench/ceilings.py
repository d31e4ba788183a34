"""What the machine could do: how fast the disk reads the same files in the same pattern, and how fast memory is copied.

The disk is read past the page cache (O_DIRECT) by as many threads as the loader has workers: small files whole and in random order,
lines of JSON at random places, shards from their beginning, each thread its own. What lies below the page cache (a hypervisor's cache,
a server's) is part of the ceiling, as it is of the trials.
"""

import mmap
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from shardtools.bench.counters import disk
from shardtools.bench.counters.device import Roots, device_under, is_memory, mount_under
from shardtools.bench.not_measured import Reasons, Unknown, read_text
from shardtools.bench.places import files_of
from shardtools.bench.spec import Layout

_BLOCK_BYTES = 4096
_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 16 << 10
"""Around a line at a random place: what the kernel reads ahead there at first."""
_MEMORY_BYTES = 64 << 20
_MEMORY_SECONDS = 0.3

Piece = tuple[str, int, int]
"""A file, and a stretch of it: begin and length, both whole blocks."""


def probe(layout: Layout, num_workers: int, seconds: float = 3.0, seed: int = 0) -> dict[str, Any]:
    """``disk_MBps``, ``disk_iops`` (10^6 bytes and requests a second, as the device counts them where it does), ``pattern``, ``threads``,
    ``host_memcpy_GBps`` (not H2D), and ``not_measured`` with the reason for every None.

    The disk is read for ``seconds``, less where the files end before. Raises nothing for what cannot be measured.
    """
    reasons = Reasons()
    threads = max(1, num_workers)
    found = reasons.attempt("disk", lambda: _read(_pieces(layout, threads, seed), files_of(layout.uri), seconds))
    rates = {"disk_MBps": None if found is None else found.mbps, "disk_iops": None if found is None else found.iops}
    memory = reasons.attempt("host_memcpy_GBps", memcpy_gbps)
    reason = reasons.of("disk")
    missing = [{"metric": name, "reason": reason or ""} for name, value in rates.items() if value is None]
    missing += [entry.as_json() for entry in reasons.listed() if entry.metric != "disk"]
    more = {"pattern": _pattern(layout), "threads": threads, "host_memcpy_GBps": memory, "not_measured": missing}
    return rates | more


def memcpy_gbps(seconds: float = _MEMORY_SECONDS, clock: Callable[[], float] = time.perf_counter) -> float:
    """The best of many copies of 64 MiB by one thread, counted once: 10^9 bytes a second."""
    source, target = (np.ones(_MEMORY_BYTES, np.uint8) for _ in range(2))
    best, began = float("inf"), clock()
    for num_copies in count():
        before = clock()
        np.copyto(target, source)
        now = clock()
        best = min(best, now - before)
        if num_copies and now - began >= seconds:
            return _MEMORY_BYTES / max(best, 1e-9) / 1e9
    raise AssertionError


@dataclass(frozen=True)
class DiskCeiling:
    """What was read."""

    mbps: float
    iops: float


def _pattern(layout: Layout) -> str:
    if layout.kind == "files":
        return "whole files in random order"
    return "random places" if layout.kind == "jsonl" and layout.reader == "torch" else "shards from their beginning"


def _pieces(layout: Layout, threads: int, seed: int) -> list[Iterator[Piece]]:
    """What each thread reads, in order."""
    chance = random.Random(seed)
    sizes = [(path, os.path.getsize(path)) for path in files_of(layout.uri)]
    sizes = [(path, _in_blocks(size)) for path, size in sizes if size]
    if not sizes:
        raise Unknown("there are no files on this machine")
    chance.shuffle(sizes)
    if _pattern(layout) == "random places":
        return [_places(sizes, random.Random(seed + 1 + thread)) for thread in range(threads)]
    return [_whole(sizes[thread::threads]) for thread in range(threads)]


def _whole(sizes: list[tuple[str, int]]) -> Iterator[Piece]:
    for path, size in sizes:
        yield from ((path, begin, min(_CHUNK_BYTES, size - begin)) for begin in range(0, size, _CHUNK_BYTES))


def _places(sizes: list[tuple[str, int]], chance: random.Random) -> Iterator[Piece]:
    weights = [size for _, size in sizes]
    while True:
        ((path, size),) = chance.choices(sizes, weights)
        length = min(_LINE_BYTES, size)
        yield path, chance.randrange(0, size - length + 1, _BLOCK_BYTES), length


def _in_blocks(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _read(threads: list[Iterator[Piece]], files: list[str], seconds: float) -> DiskCeiling:
    """Raises Unknown where the disk cannot be read past the page cache."""
    if is_memory(mount_under(files[0], Roots())):
        raise Unknown("the files are on a file system in memory, which has no disk")
    _require_direct(files[0])
    look = _device_look(files[0])
    before, began = look(), time.perf_counter()
    readers = [_Reader(pieces, began + seconds) for pieces in threads]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    wall_s = max(1e-9, time.perf_counter() - began)
    after = look()
    failed = next((reader.error for reader in readers if reader.error is not None), None)
    if failed is not None:
        raise Unknown(f"reading past the page cache failed: {os.strerror(failed.errno or 0)}")
    mbps, iops = sum(reader.num_bytes for reader in readers) / wall_s / 1e6, sum(reader.num_reads for reader in readers) / wall_s
    if before is not None and after is not None:
        # The device splits large reads; trials are counted by its requests, too.
        iops = max(iops, disk.rates(after.less(before), wall_s).iops)
    return DiskCeiling(mbps, iops)


def _require_direct(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError) as error:
        raise Unknown(f"the file system of {path} does not let itself be read past the page cache: {error}") from None
    os.close(fd)


def _device_look(path: str) -> Callable[[], disk.DiskCounts | None]:
    try:
        device = device_under(path, Roots())
        counts = disk.parse_diskstats(read_text("/proc/diskstats"), device.name)
    except Unknown:
        return lambda: None
    assert counts is not None

    def look() -> disk.DiskCounts | None:
        try:
            return disk.parse_diskstats(read_text("/proc/diskstats"), device.name)
        except Unknown:
            return None

    return look


class _Reader(threading.Thread):
    """One of them, until its pieces or its time end. Reads release the interpreter."""

    def __init__(self, pieces: Iterator[Piece], until: float) -> None:
        super().__init__(name="shardtools-ceiling", daemon=True)
        self._pieces = pieces
        self._until = until
        self.num_bytes = self.num_reads = 0
        self.error: OSError | None = None

    def run(self) -> None:
        # Pages of its own: a direct read needs memory that begins at a block.
        with mmap.mmap(-1, _CHUNK_BYTES) as buffer:
            view, opened, fd = memoryview(buffer), "", -1
            try:
                for path, begin, length in self._pieces:
                    if path != opened:
                        fd = self._reopened(fd, path)
                        opened = path
                    self.num_bytes += os.preadv(fd, [view[:length]], begin)
                    self.num_reads += 1
                    if time.perf_counter() >= self._until:
                        break
            except OSError as error:
                self.error = error
            finally:
                view.release()
                if fd >= 0:
                    os.close(fd)

    def _reopened(self, fd: int, path: str) -> int:
        following = os.open(path, os.O_RDONLY | os.O_DIRECT)
        if fd >= 0:
            os.close(fd)
        return following
