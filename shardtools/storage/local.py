"""Datasets in a folder of this machine or of a shared file system."""

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO, ClassVar

from shardtools.errors import StorageError
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME, PRIVATE_FOLDER
from shardtools.storage import Stored, Whole, one_sentence, require_safe, sentence_of
from shardtools.storage._file_writer import LocalWriter
from shardtools.storage._folders import make_folders, remove_empty, remove_tree, sync_files, sync_folder

_BLOCK_BYTES = 1 << 20
_LOCK_SECONDS = 60.0
_LOCK_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Local:
    """Objects as files below ``uri``, an absolute path. Source: POSIX rename and link are atomic within one file system."""

    uri: str

    is_local: ClassVar[bool] = True
    finishes_at_once: ClassVar[bool] = False
    num_at_once: ClassVar[int] = 1

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
                with _opened_regular(path) as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def num_bytes(self, name: str) -> int | None:
        status = self._status(name)
        return None if status is None else status.st_size

    def entry(self, name: str) -> Stored | None:
        status = self._status(name)
        return None if status is None else Stored(name, status.st_size, status.st_mtime_ns, str(status.st_mtime_ns))

    def sha256(self, name: str) -> str:
        path = self.local_path(name)
        digest = hashlib.sha256()
        with one_sentence("read", path), open(path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
        return digest.hexdigest()

    def entries(self, prefix: str = "") -> Iterator[Stored]:
        return (found for name in self.names(prefix) if (found := self.entry(name)) is not None)

    def names(self, prefix: str = "") -> Iterator[str]:
        root = self.local_path(prefix) if prefix else self.uri
        for folder, _, files in os.walk(root, onerror=_refuse_walk_error):
            for name in files:
                yield os.path.relpath(os.path.join(folder, name), self.uri).replace(os.sep, "/")

    def writer(self, name: str, *, durable: bool = True) -> LocalWriter:
        return LocalWriter(self.local_path(name), durable=durable)

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

    def place(self, source: str, target: str) -> bool:
        return self.move(source, target)

    def adopt(self, uri: str, found: Stored, target: str) -> bool:
        return False

    def sync(self, names: Iterable[str] = ()) -> None:
        sync_files([self.local_path(name) for name in names])
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
                if not name.startswith(PRIVATE_FOLDER + "/"):  # into whose folders others may be writing
                    remove_empty(os.path.dirname(path), self.uri)
            except FileNotFoundError:
                pass
            except IsADirectoryError:  # or was one, if another run removes it, too
                remove_tree(path)
            except PermissionError:  # what macOS says of a folder
                if not os.path.isdir(path):
                    raise
                remove_tree(path)

    def discard_unfinished(self, prefix: str = "") -> None:
        pass  # what is not finished has a name

    def fetch(self, name: str, path: str, version: str = "") -> None:
        stored = self.local_path(name)
        with one_sentence("copy", f"{stored} to {path}"), _opened_version(stored, version) as old, open(path, "xb") as new:
            while block := old.read(_BLOCK_BYTES):
                new.write(block)

    def read_into(self, name: str, view: memoryview, begin: int = 0) -> None:
        path = self.local_path(name)
        position = 0
        with one_sentence("read", path), _opened_regular(path) as file:
            file.seek(begin)
            while position < len(view):
                taken = file.readinto(view[position:])
                if not taken:
                    num_bytes = os.fstat(file.fileno()).st_size
                    raise StorageError(f"expected {begin + len(view)} bytes of {path}, got only {num_bytes}; restore it")
                position += taken

    def wholes(self, wanted: Iterable[tuple[str, int]]) -> Iterator[Whole | None]:
        return (self._whole(*one) for one in wanted)

    def open(self, name: str, until: int | None = None, version: str = "") -> BinaryIO:
        path = self.local_path(name)
        with one_sentence("read", path):
            return _opened_version(path, version)

    def local_path(self, name: str) -> str:
        require_safe(name, self.uri)
        return os.path.join(self.uri, name)

    def _whole(self, name: str, num_bytes: int) -> Whole | None:
        found = self.entry(name)
        if found is None or found.num_bytes != num_bytes:
            return found and Whole(b"", found.num_bytes, found.version)
        data = self.get(name)
        return None if data is None else Whole(data, len(data), found.version)

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


def _opened_regular(path: str) -> FileIO:
    # A FIFO of that name would otherwise be waited for, and a device read for ever.
    file = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise StorageError(f"expected a regular file at {path}, got something else; remove it")
    return file


def _opened_version(path: str, version: str) -> FileIO:
    file = _opened_regular(path)
    if version and str(os.fstat(file.fileno()).st_mtime_ns) != version:
        file.close()
        raise StorageError(f"expected {path} to be the file that was listed, got another; run again when nothing writes to it")
    return file


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
