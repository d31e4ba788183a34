"""The page cache before and after a trial: emptied or filled on purpose, and proved.

What the page cache held is known to the page; what caches lie below it (a hypervisor's, a server's, the disk's own) is not.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from shardtools.bench.not_measured import Unknown
from shardtools.bench.page_cache.resident import Cleaner, Look, Pages, choose_look, drop
from shardtools.bench.places import files_of
from shardtools.errors import StorageError
from shardtools.storage import sentence_of

_READ_BYTES = 1 << 20
_PAUSES_SECONDS = (0.0, 0.05, 0.2, 0.5)
"""Between attempts: pages just read wait in lists of each processor, which the kernel empties in its own time."""
_NUM_EXAMPLES = 3


@dataclass(frozen=True)
class Residency:
    """How much of some files is in the page cache."""

    num_pages: int
    num_resident: int | None
    """None: not known."""
    method: str
    """``cachestat``, ``mincore``, or both where the files lie on several file systems."""
    reason: str
    """Why it is not known."""
    examples: tuple[str, ...] = ()
    """Some of the files that hold resident pages."""

    @property
    def share(self) -> float | None:
        """0 to 1; of no pages at all, 0."""
        return None if self.num_resident is None else self.num_resident / max(1, self.num_pages)


class PageCache:
    """The pages of the files behind a URI, listed once. One byte of a file of each file system is read, to see that reading is seen.

    Every method raises StorageError for a file that cannot be opened.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self.files = list(files)
        self._look_of: dict[int, tuple[str, Look] | str] = {}
        """By file system: how to look, or why it cannot be done."""
        for path in self.files:
            with _opened(path) as fd:
                status = os.fstat(fd)
            if status.st_size and status.st_dev not in self._look_of:
                self._look_of[status.st_dev] = _choose(path)

    @classmethod
    def of(cls, uri: str) -> "PageCache":
        return cls(files_of(uri))

    def residency(self) -> Residency:
        """Opens every file, which reads its inode."""
        return self._summary(self._looked(self.files))

    def evict(self) -> Residency:
        """Drops every page of every file, and says what is left; clean pages that a program maps stay."""
        if sys.platform != "linux":
            return Residency(0, None, "", "only Linux can evict a file")
        left: list[str] = self.files
        found: dict[str, Pages | str] = {}
        for pause in _PAUSES_SECONDS:
            time.sleep(pause)
            found |= dict(self._looked(left, Cleaner()))
            left = [path for path in left if _num_resident(found[path])]
            if not left:
                break
        return self._summary(found.items())

    def warm(self) -> Residency:
        """Reads every byte of every file, and says how much stayed."""
        buffer = bytearray(_READ_BYTES)
        for path in self.files:
            with _opened(path) as fd:
                while os.readv(fd, [buffer]):
                    pass
        return self.residency()

    def _looked(self, files: Iterable[str], cleaner: Cleaner | None = None) -> Iterator[tuple[str, Pages | str]]:
        for path in files:
            with _opened(path) as fd:
                yield path, self._drop_and_look(fd, cleaner) if cleaner else self._look(fd)

    def _drop_and_look(self, fd: int, cleaner: Cleaner) -> Pages | str:
        before = self._look(fd)
        if isinstance(before, Pages) and not before.num_resident:
            return before
        try:
            if not isinstance(before, Pages) or before.is_dirty:
                cleaner.clean(fd)
            drop(fd)
        except Unknown as unknown:
            return str(unknown)
        return self._look(fd)

    def _look(self, fd: int) -> Pages | str:
        status = os.fstat(fd)
        if not status.st_size:
            return Pages(0, 0, False)
        way = self._look_of.get(status.st_dev, "the file has grown since it was listed")
        if isinstance(way, str):
            return way
        try:
            return way[1](fd)
        except Unknown as unknown:
            return str(unknown)

    def _summary(self, found: Iterable[tuple[str, Pages | str]]) -> Residency:
        num_pages = num_resident = 0
        reason = ""
        examples: list[str] = []
        for path, pages in found:
            if isinstance(pages, str):
                reason = reason or f"{path}: {pages}"
                continue
            num_pages, num_resident = num_pages + pages.num_pages, num_resident + pages.num_resident
            if pages.num_resident and len(examples) < _NUM_EXAMPLES:
                examples.append(path)
        names = sorted({way[0] for way in self._look_of.values() if not isinstance(way, str)})
        return Residency(num_pages, None if reason else num_resident, " and ".join(names), reason, tuple(examples))


def _num_resident(pages: Pages | str) -> int:
    return 0 if isinstance(pages, str) else pages.num_resident


def _choose(path: str) -> tuple[str, Look] | str:
    try:
        return choose_look(path)
    except Unknown as unknown:
        return str(unknown)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(sentence_of("open", path, error)) from error
    try:
        yield fd
    except OSError as error:
        raise StorageError(sentence_of("read", path, error)) from error
    finally:
        os.close(fd)
