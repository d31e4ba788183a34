"""Shards that are remote or compressed, kept on this machine as files that can be mapped: bounded, and shared by its processes."""

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from shardtools.errors import StorageError
from shardtools.loaders._cache_names import LOCK, OURS, PART, SHARD, file_name, this_start

_FOLDER_LOCK = "shardtools-cache" + LOCK
_TOUCH_SECONDS = 60.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class ShardCache:
    """Files made on demand, for all processes and jobs of a user that name the same folder.

    Each is made once, while the others wait. A process that is killed at any moment leaves a whole file or a part nobody looks
    at, which a later insertion removes; so does the machine. Before every insertion the longest unused go until what is left,
    with what is being made, fits the limit of whoever inserts; a file larger than that is kept alone. What a process
    has opened it keeps, and its space with it. Only files of the cache's own naming are ever deleted, and originals are none.
    """

    folder: str | None
    """None: one of this user's own below the temporary folder."""
    limit_bytes: int
    ahead_bytes: int = 0
    """The most that each reader fetches before it is read."""

    def open(self, key: str, make: Callable[[str], None]) -> IO[bytes]:
        """The file of that key, for reading; where it is not there, ``make`` writes it to the path it is given.

        Raises StorageError where the folder or the disk refuses, and what ``make`` raises, an OSError as StorageError.
        """
        folder = self._prepared()
        with _one_sentence(folder):
            return self._found_or_made(os.path.join(folder, file_name(key)), make, wait=True)

    def make_ahead(self, key: str, make: Callable[[str], None]) -> bool:
        """Has the file of that key there and counted as used, but does not wait for another that makes it: False then.

        Raises what ``open`` does.
        """
        folder = self._prepared()
        with _one_sentence(folder):
            try:
                self._found_or_made(os.path.join(folder, file_name(key)), make, wait=False).close()
            except BlockingIOError:
                return False
            return True

    def _found_or_made(self, path: str, make: Callable[[str], None], wait: bool) -> IO[bytes]:
        """Raises BlockingIOError where another makes it, and it may not be waited for."""
        found = _opened(path)
        if found is not None:
            return found
        with _locked(path.removesuffix(SHARD) + LOCK, wait):
            found = _opened(path)
            if found is not None:
                return found  # another made it meanwhile
            return self._made(path, make)

    def _made(self, path: str, make: Callable[[str], None]) -> IO[bytes]:
        """The file, opened under a name that only it has, then named ``path``. Its lock is held."""
        # A name of its own: also where somebody empties the folder, nobody renames what another has half written.
        part = f"{path.removesuffix(SHARD)}.{os.urandom(8).hex()}{PART}"
        try:
            make(part)
            with ExitStack() as on_failure:
                file = on_failure.enter_context(open(part, "rb"))
                if not this_start():
                    # Or a loss of power leaves a name without its bytes, which would be taken for whole ever after.
                    os.fsync(file.fileno())
                os.utime(file.fileno())
                # Before it has its name, so that at no moment more is there than the limit says.
                self._evict(part)
                os.replace(part, path)
                on_failure.pop_all()
            return file
        finally:
            with suppress(OSError):
                os.unlink(part)

    def drop(self, key: str) -> None:
        """Forgets the file of that key, if it is there: it turned out to be damaged."""
        folder = self._prepared()
        with _one_sentence(folder):
            _unlink(os.path.join(folder, file_name(key)))

    def _evict(self, part: str) -> None:
        """Removes the longest unused until the rest fits, with what is being made. Time: a look at each file of the folder."""
        folder = os.path.dirname(part)
        with _locked(os.path.join(folder, _FOLDER_LOCK)):
            total, shards = _swept(folder, part)
            for _, num_bytes, path in sorted(shards):
                if total <= self.limit_bytes:
                    break
                _unlink(path)
                total -= num_bytes

    def _prepared(self) -> str:
        """The folder, made where it was not there."""
        own = os.path.join(tempfile.gettempdir(), f"shardtools-cache-{os.getuid()}")
        folder = own if self.folder is None else self.folder
        try:
            os.makedirs(folder, mode=0o700 if self.folder is None else 0o777, exist_ok=True)
            status = os.lstat(folder)
        except OSError as error:
            sentence = f"expected a folder for the cache at {folder}, but the system said: {error.strerror}"
            raise StorageError(f"{sentence}; choose another cache_folder") from error
        # Anybody may make names in the temporary folder, and whoever can write here chooses what is trained on.
        is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
        if self.folder is None and not is_private:
            sentence = f"expected {folder} to be a folder that is this user's alone, got a link, another's or one open to others"
            raise StorageError(f"{sentence}; remove it, or choose a cache_folder")
        return folder


def _opened(path: str) -> IO[bytes] | None:
    """None where the file is not there, be it no longer."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - whoever asked for it closes it
    except FileNotFoundError:
        return None
    # Rarely, since every use would else be a write.
    if abs(time.time() - os.fstat(file.fileno()).st_mtime) > _TOUCH_SECONDS:
        with suppress(OSError):
            os.utime(file.fileno())
    return file


def _swept(folder: str, part: str) -> tuple[int, list[tuple[float, int, str]]]:
    """Removes what the dead left. Of what stays: all bytes, and each shard's time of last use, bytes and path.

    The lock of ``part`` is the caller's: what else of its digest is unfinished a dead one left.
    """
    own = os.path.basename(part).partition(".")[0]
    total, shards = 0, []
    for digest, entry in _entries(folder):
        is_shard = entry.name.endswith(SHARD)
        if is_shard or entry.path == part or (digest != own and _is_held(os.path.join(folder, digest + LOCK))):
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                total += status.st_size
                if is_shard:
                    shards.append((status.st_mtime, status.st_size, entry.path))
        elif entry.name.endswith(PART):  # a lock may be somebody's again by now
            _unlink(entry.path)
    return total, shards


def _entries(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The cache's own files, each with the digest of its key."""
    with os.scandir(folder) as entries:
        for entry in entries:
            match = OURS.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                yield match[1], entry


def _is_held(lock: str) -> bool:
    """Whether a live process holds it; what a dead one held is removed."""
    try:
        with _locked(lock, wait=False):
            return False
    except BlockingIOError:
        return True


def abandon(part: str) -> bool:
    """Remove what a ``make`` was given to write, while it may still be writing; False where it has not begun.

    Whoever waits for it makes it anew.
    """
    try:
        os.unlink(part)
    except OSError:
        return False
    with suppress(OSError):
        os.unlink(os.path.join(os.path.dirname(part), os.path.basename(part)[:64] + LOCK))
    return True


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


@contextmanager
def _locked(path: str, wait: bool = True) -> Iterator[None]:
    """One thread of one process at a time, by a lock file that is there while it is held; a process that dies lets go.

    Raises BlockingIOError where it would have to wait and may not.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_at(path, fd):  # else whoever held it removed it, and who comes next locks another file
                try:
                    yield
                finally:
                    if _is_at(path, fd):
                        _unlink(path)
                    # Closing is not enough: a process forked meanwhile has a copy of fd, for as long as it lives.
                    fcntl.flock(fd, fcntl.LOCK_UN)
                return
        finally:
            os.close(fd)


def _is_at(path: str, fd: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(fd))
    return False


@contextmanager
def _one_sentence(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "check that it can be written and that its shard can be read, or choose another cache_folder"
        if error.errno in _FULL:
            remedy = "free some space, or choose another cache_folder or a smaller cache_bytes"
        raise StorageError(
            f"expected to keep a shard in the cache folder {folder}, but the system said: {error.strerror or error}; {remedy}"
        ) from error
