"""Where bytes live: named objects under one dataset root."""

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Protocol

from shardtools import plugins
from shardtools.errors import StorageError


class ObjectWriter(Protocol):
    """One new object, written front to back under a name no reader looks at."""

    spool_folder: str
    """A local folder with room for what must wait before it can be written."""

    def write(self, data: bytes) -> None:
        """Append. Raises StorageError when the destination cannot take it."""

    def finish(self) -> None:
        """Complete the object, on stable storage."""

    def abort(self) -> None:
        """Leave nothing behind; allowed at any time, also after a failed write."""


class Storage(Protocol):
    """Objects by name, the ``/``-separated path below the dataset root.

    Every method that changes something can be repeated. All raise StorageError with one sentence, also for a name that
    is not safe.
    """

    uri: str
    is_local: ClassVar[bool]
    """Objects lie on this machine at their ``local_path``."""

    def create(self, name: str, data: bytes) -> bool:
        """Durably store a whole object unless the name is taken; False if it is."""

    def put(self, name: str, data: bytes) -> None:
        """Durably store a whole object; readers see the old one or the new one, never a part."""

    def get(self, name: str) -> bytes | None:
        """The whole object, None if there is none."""

    def num_bytes(self, name: str) -> int | None:
        """The object's length, None if there is none."""

    def modified_ns(self, name: str) -> int | None:
        """When the object was last stored, in nanoseconds since 1970; None if there is none."""

    def sha256(self, name: str) -> str:
        """The lower-case hex digest of the object's bytes."""

    def names(self, prefix: str = "") -> Iterator[str]:
        """Every object below ``prefix`` (a folder, or everything), in no promised order."""

    def writer(self, name: str) -> ObjectWriter:
        """Begin a new object of unknown length."""

    def move(self, source: str, target: str) -> bool:
        """Rename, replacing the target. False if the source is gone and the target is there, whatever it holds.

        Survives a loss of power once a later ``put`` into the target's folder returned.
        """

    def sync_names(self) -> None:
        """Returns when renames and removals in the dataset's own folder survive a loss of power."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Keeps other runs out of what is done inside: one publication or clean-up at a time.

        A run that dies leaves nothing locked. Raises StorageError when another holds it for a minute. Where the storage
        cannot lock, nothing is kept out.
        """

    def delete(self, name: str) -> None:
        """Remove an object or a folder of them. No error if it is gone already."""

    def fetch(self, name: str, path: str) -> None:
        """Copy a whole object into a new file of this machine, at ``path``. After an error, what is there is no object."""

    def local_path(self, name: str) -> str:
        """A path on this machine at which the object's bytes can be mapped."""


def is_safe_name(name: str) -> bool:
    """Whether ``name`` is a ``/``-separated path that stays below the folder it is joined to."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    if not name or "\0" in name or "\\" in name:
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


def open_storage(uri: str) -> Storage:
    """The storage a user's text names. Raises UsageError for a scheme no storage serves."""
    scheme, separator, _ = uri.partition("://")
    if separator and scheme != "file":
        storage: Storage = plugins.load("storage", scheme)(uri)
        return storage
    try:
        path = os.path.abspath(uri.removeprefix("file://"))
    except FileNotFoundError:
        raise StorageError(f"expected a current folder for the relative path {uri}, got one that was deleted; change to another") from None
    local: Storage = plugins.load("storage", "local")(path)
    return local


@contextmanager
def one_sentence(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(sentence_of(action, path, error)) from error


def sentence_of(action: str, path: str, error: OSError) -> str:
    """The sentence for an operating system's error."""
    remedies = {
        errno.ENOSPC: "free some space and run the same command again; finished parts are kept",
        errno.EDQUOT: "free some of the quota and run the same command again; finished parts are kept",
        errno.EACCES: "give this user the permission or choose another place",
        errno.EPERM: "give this user the permission or choose another place",
        errno.EROFS: "choose a place that can be written",
        errno.ENOTDIR: "a part of the path is a file; choose another place",
        errno.EIO: "the device reports an error; check the disk",
    }
    remedy = remedies.get(error.errno or 0, "check the path and run the same command again")
    return f"could not {action} {path}: {os.strerror(error.errno or 0)}; {remedy}"
