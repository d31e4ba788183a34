"""Shards that are remote or compressed, kept on this machine as files that can be mapped: bounded, and shared by its processes."""

import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from shardtools.errors import StorageError

_SUFFIX, _PART, _LOCK = ".shard", ".part", ".lock"
_TOUCH_SECONDS = 60.0
_FOLDER_LOCK = "folder" + _LOCK
_NAME = "[0-9a-f]{64}"


@dataclass(frozen=True)
class ShardCache:
    """Files made on demand. Nothing but files of its own naming is ever deleted, and originals are none of them.

    Of all that is kept, the longest unused goes first; what a process has opened it keeps. A file that is larger than the
    limit is kept alone. Processes of any number of jobs may share the folder: each file is made once, and one that was killed
    in making it leaves a part that the next removes.
    """

    folder: str | None
    """None: a folder of this user's below the temporary one."""
    limit_bytes: int

    def open(self, key: str, make: Callable[[str], None]) -> IO[bytes]:
        """The file of that key, for reading; ``make`` writes it to the path it is given, where it is not there.

        Raises StorageError where the folder cannot be used, and what ``make`` raises.
        """
        folder = self._prepared()
        name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        path = os.path.join(folder, name + _SUFFIX)
        while True:
            found = _opened(path)
            if found is not None:
                return found
            with _locked(_lock_path(folder, name)):
                if os.path.exists(path):
                    continue  # made while this process waited
                self._make(path, make)

    def _make(self, path: str, make: Callable[[str], None]) -> None:
        part = path.removesuffix(_SUFFIX) + _PART
        try:
            # The lock says that whoever left a part is no more.
            with suppress(FileNotFoundError):
                os.unlink(part)
            make(part)
            os.replace(part, path)
        except OSError as error:
            raise StorageError(
                f"expected room for a shard in the cache {os.path.dirname(path)}, but the system said: {error.strerror}; "
                "free some space, or choose another cache_folder or a smaller cache_bytes"
            ) from error
        finally:
            with suppress(OSError):
                os.unlink(part)
        self._evict(path)

    def _evict(self, kept: str) -> None:
        """Deletes the longest unused until the rest fits."""
        folder = os.path.dirname(kept)
        with _locked(os.path.join(folder, _FOLDER_LOCK)):
            files = sorted(_files(folder), reverse=True)
            total = sum(num_bytes for _, num_bytes, _ in files) + _bytes_in_the_making(folder)
            while total > self.limit_bytes and files:
                _, num_bytes, path = files.pop()
                if path != kept:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                    total -= num_bytes

    def _prepared(self) -> str:
        folder = self.folder or os.path.join(tempfile.gettempdir(), f"shardtools-cache-{os.getuid()}")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            status = os.lstat(folder)
        except OSError as error:
            sentence = f"expected a folder for the cache at {folder}, but the system said: {error.strerror}"
            raise StorageError(f"{sentence}; choose another cache_folder") from error
        # Anybody may make names in the temporary folder.
        if self.folder is None and (not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid()):
            sentence = f"expected {folder} to be a folder of this user, got another's or a link"
            raise StorageError(f"{sentence}; remove it, or choose a cache_folder")
        return folder


def _opened(path: str) -> IO[bytes] | None:
    """None where the file is not there, be it no longer."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - whoever asked for it closes it
    except FileNotFoundError:
        return None
    now = time.time()
    if now - os.fstat(file.fileno()).st_mtime > _TOUCH_SECONDS:
        with suppress(OSError):
            os.utime(file.fileno(), (now, now))
    return file


def _files(folder: str, wanted: str = _SUFFIX) -> Iterator[tuple[float, int, str]]:
    """When each was used last, its length, its path."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if re.fullmatch(_NAME + re.escape(wanted), entry.name):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, entry.path


def _bytes_in_the_making(folder: str) -> int:
    """Of the parts that live processes write; those of dead ones are removed."""
    total = 0
    for _, num_bytes, path in _files(folder, _PART):
        try:
            with _locked(_lock_path(folder, os.path.basename(path)), wait=False), suppress(FileNotFoundError):
                os.unlink(path)
        except BlockingIOError:
            total += num_bytes
    return total


def _lock_path(folder: str, name: str) -> str:
    """One lock for all names that begin alike: few files that stay for ever, and waiting for another's file is rare."""
    return os.path.join(folder, name[:2] + _LOCK)


@contextmanager
def _locked(path: str, wait: bool = True) -> Iterator[None]:
    """One process at a time; a lock ends with the process that holds it. Raises BlockingIOError where it may not wait."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(fd)
