"""Media read below one folder, of this machine or of an object store, in the order in which they are asked for."""

import errno
import os
import stat
from collections.abc import Generator, Iterable
from itertools import tee
from typing import Protocol

from shardtools.errors import StorageError
from shardtools.places import at_once, is_here
from shardtools.storage import Storage, Stored, open_storage, sentence_of
from shardtools.transforms._embed_paths import Refusal, missing, outside, unreadable

# A FIFO in the place of a file would block an open without O_NONBLOCK for ever.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# These say something about one file; any other error is the machine's, and would make bad samples of good ones.
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_OF_THE_FILE = (*_MISSING, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
_KNOWN_FOLDERS = 1 << 16


class MediaFolder(Protocol):
    """Files by their names below the folder."""

    def contents(self, names: Iterable[str]) -> Generator[bytes | Refusal]:
        """The bytes of each file, in order. Raises StorageError for trouble that is not of one file."""

    def sizes(self, names: Iterable[str]) -> Generator[int]:
        """The length of each file; 0 for one that cannot be read."""


def media_folder(root: str) -> MediaFolder:
    """``root`` is a place: an absolute path, or ``s3://bucket/prefix``."""
    return LocalMedia(root) if is_here(root) else ObjectMedia(root)


class LocalMedia:
    """Files of this machine. A link is followed as long as what it leads to lies below the folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)
        self._inside: dict[str, bool] = {}

    def contents(self, names: Iterable[str]) -> Generator[bytes | Refusal]:
        return (self._read(name) for name in names)

    def sizes(self, names: Iterable[str]) -> Generator[int]:
        return (self._size(name) for name in names)

    def _read(self, name: str) -> bytes | Refusal:
        try:
            fd = self._open(name)
            if isinstance(fd, Refusal):
                return fd
            with open(fd, "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return unreadable(name, "it is no file; correct the record")
                return file.readall()
        except OSError as error:
            if error.errno in _MISSING:
                return missing(name)
            if error.errno in _OF_THE_FILE:
                return unreadable(name, f"{os.strerror(error.errno or 0)}; correct the record, or what it names")
            raise StorageError(sentence_of("read", os.path.join(self._root, name), error)) from error

    def _open(self, name: str) -> int | Refusal:
        path = os.path.join(self._root, name)
        if not self._is_inside(os.path.dirname(path)):
            return outside(name)
        try:
            return os.open(path, _OPEN_FLAGS | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        # Only a link is looked at twice.
        real = os.path.realpath(path)
        return os.open(real, _OPEN_FLAGS) if self._is_below(real) else outside(name)

    def _is_inside(self, folder: str) -> bool:
        known = self._inside.get(folder)
        if known is None:
            if len(self._inside) == _KNOWN_FOLDERS:
                self._inside.clear()
            known = self._inside[folder] = self._is_below(os.path.realpath(folder))
        return known

    def _is_below(self, real: str) -> bool:
        return real == self._real_root or real.startswith(self._real_root.rstrip("/") + "/")

    def _size(self, name: str) -> int:
        try:
            status = os.stat(os.path.join(self._root, name))
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0


class ObjectMedia:
    """Objects of a store, many asked for at a time; memory as ``Storage.wholes`` bounds it."""

    def __init__(self, root: str) -> None:
        self._storage: Storage = open_storage(root)

    def contents(self, names: Iterable[str]) -> Generator[bytes | Refusal]:
        asked, looked_up = tee(names)
        # An object is asked for with its length, by which those ahead are bounded.
        found, there = tee(self._found(looked_up))
        wholes = self._storage.wholes((one.name, one.num_bytes) for one in there if one is not None)
        try:
            for name, one in zip(asked, found, strict=True):
                whole = None if one is None else next(wholes)
                if whole is None or one is None:
                    yield missing(name)
                elif whole.num_bytes != one.num_bytes:
                    yield unreadable(name, "it was changed meanwhile; run again when nothing writes to it")
                else:
                    yield whole.data
        finally:
            wholes.close()  # type: ignore[attr-defined]

    def sizes(self, names: Iterable[str]) -> Generator[int]:
        return (0 if one is None else one.num_bytes for one in self._found(names))

    def _found(self, names: Iterable[str]) -> Generator[Stored | None]:
        return (one for one in at_once(self._storage, self._storage.entry, names))
