"""Datasets in a folder of this machine or of a shared file system."""

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, ClassVar, TypeVar

from shardtools.errors import StorageError
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME
from shardtools.storage import is_safe_name, one_sentence, sentence_of
from shardtools.storage._folders import make_folders, remove_tree, sync_folder

_T = TypeVar("_T")
_BLOCK_BYTES = 1 << 20
# New files follow the umask, like those of any other program.
_FILE_MODE = 0o666
_LOCK_SECONDS = 60.0
_LOCK_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Local:
    """Objects as files below ``uri``, an absolute path. Source: POSIX rename and link are atomic within one file system."""

    uri: str

    is_local: ClassVar[bool] = True

    def create(self, name: str, data: bytes) -> bool:
        path = self.local_path(name)
        temporary = self._write_temporary(data)
        with one_sentence("create", path):
            make_folders(os.path.dirname(path))
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                os.unlink(temporary)
            sync_folder(path)
        return True

    def put(self, name: str, data: bytes) -> None:
        path = self.local_path(name)
        temporary = self._write_temporary(data)
        with one_sentence("write", path):
            make_folders(os.path.dirname(path))
            os.replace(temporary, path)
            sync_folder(path)

    def get(self, name: str) -> bytes | None:
        path = self.local_path(name)
        with one_sentence("read", path):
            try:
                with _open_regular(path) as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def num_bytes(self, name: str) -> int | None:
        status = self._status(name)
        return None if status is None else status.st_size

    def modified_ns(self, name: str) -> int | None:
        status = self._status(name)
        return None if status is None else status.st_mtime_ns

    def sha256(self, name: str) -> str:
        path = self.local_path(name)
        digest = hashlib.sha256()
        with one_sentence("read", path), open(path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
        return digest.hexdigest()

    def names(self, prefix: str = "") -> Iterator[str]:
        root = self.local_path(prefix) if prefix else self.uri
        for folder, _, files in os.walk(root, onerror=_refuse_walk_error):
            for name in files:
                yield os.path.relpath(os.path.join(folder, name), self.uri).replace(os.sep, "/")

    def writer(self, name: str) -> "LocalWriter":
        return LocalWriter(self.local_path(name))

    def move(self, source: str, target: str) -> bool:
        old, new = self.local_path(source), self.local_path(target)
        with one_sentence("move", new):
            make_folders(os.path.dirname(new))
            try:
                os.replace(old, new)
            except FileNotFoundError:
                # Another run of the same plan was faster.
                if not os.path.exists(new):
                    raise
                return False
        return True

    def sync_names(self) -> None:
        with one_sentence("write", self.uri):
            sync_folder(self.local_path(MANIFEST_NAME))

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with one_sentence("open", self.uri):
            make_folders(self.uri)
            # The folder itself is locked: a lock file would be left over, or removed under another run's hands.
            fd = os.open(self.uri, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(fd, self.uri)
            yield
        finally:
            os.close(fd)

    def delete(self, name: str) -> None:
        path = self.local_path(name)
        with one_sentence("delete", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except (IsADirectoryError, PermissionError):
                if not os.path.isdir(path):
                    raise
                remove_tree(path)

    def fetch(self, name: str, path: str) -> None:
        stored = self.local_path(name)
        with one_sentence("copy", f"{stored} to {path}"), _open_regular(stored) as old, open(path, "xb") as new:
            while block := old.read(_BLOCK_BYTES):
                new.write(block)

    def local_path(self, name: str) -> str:
        # Names also come from manifests of unknown origin.
        if not is_safe_name(name):
            raise StorageError(f"expected a name below {self.uri}, got {name!r}; do not use this dataset before you know who made it")
        return os.path.join(self.uri, name)

    def _status(self, name: str) -> os.stat_result | None:
        path = self.local_path(name)
        with one_sentence("look at", path):
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link to itself is a link to nothing
                    return None
                raise
        return status if stat.S_ISREG(status.st_mode) else None

    def _write_temporary(self, data: bytes) -> str:
        # Not beside the object: a run that is killed here must leave nothing where readers look.
        temporary = self.local_path(f"{BUILD_FOLDER}/tmp/{os.urandom(8).hex()}")
        writer = LocalWriter(temporary)
        try:
            writer.write(data)
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        return temporary


class LocalWriter:
    """A file that is being written; the caller chose a name nobody else looks at, and renames it when it is finished."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.spool_folder = os.path.dirname(path)
        with one_sentence("create", path):
            make_folders(self.spool_folder)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)

    def write(self, data: bytes) -> None:
        with one_sentence("write", self._path):
            written = os.write(self._fd, data)
            # A short write happens at a full disk and above 2 GiB.
            view = memoryview(data)
            while written < len(data):
                written += os.write(self._fd, view[written:])

    def finish(self) -> None:
        with one_sentence("write", self._path):
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def abort(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with one_sentence("delete", self._path):
            _ignore_missing(lambda: os.unlink(self._path))


@contextmanager
def _open_regular(path: str) -> Iterator[IO[bytes]]:
    # A FIFO of that name would otherwise be waited for, and a device read for ever.
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StorageError(f"expected a regular file at {path}, got something else; remove it")
        yield file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _refuse_walk_error(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise StorageError(sentence_of("list", str(error.filename), error)) from error


def _lock(fd: int, path: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StorageError(f"expected {path} to be free, got another run that is publishing there; let it finish") from None
            time.sleep(_LOCK_POLL_SECONDS)
        except OSError:
            return  # a file system without such locks


def _ignore_missing(action: Callable[[], _T]) -> None:
    with suppress(FileNotFoundError):
        action()
