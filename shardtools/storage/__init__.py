"""Where bytes live: named objects under one dataset root."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, ClassVar, NamedTuple, Protocol

from shardtools import plugins
from shardtools.errors import StorageError, UsageError

_BUCKET_MISTYPED = re.compile(r"s3[an]?:(?!//)|s3//", re.IGNORECASE)


class Stored(NamedTuple):
    """One object as a listing shows it."""

    name: str
    num_bytes: int
    modified_ns: int
    """When it was stored, in nanoseconds since 1970."""
    version: str
    """Another text for other bytes of the same name: an ETag without its quotes, or the time of modification."""


class Whole(NamedTuple):
    """One object that was read as it was expected to be."""

    data: bytes
    """Nothing where it has another length than was expected."""
    num_bytes: int
    version: str


class ObjectWriter(Protocol):
    """One new object, written front to back under a name no reader looks at."""

    spool_folder: str
    """A local folder with room for what must wait before it can be written."""
    version: str
    """Once it is finished, as a listing shows it; empty where that is not known."""

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
    finishes_at_once: ClassVar[bool]
    """A writer's object appears when it is finished, and moving it costs a copy: it need not be written under another name first."""
    num_at_once: ClassVar[int]
    """How many operations on different objects are worth doing at a time."""

    def create(self, name: str, data: bytes) -> bool:
        """Durably store a whole object unless the name is taken; False if it is."""

    def put(self, name: str, data: bytes) -> None:
        """Durably store a whole object; readers see the old one or the new one, never a part."""

    def get(self, name: str) -> bytes | None:
        """The whole object, None if there is none."""

    def num_bytes(self, name: str) -> int | None:
        """The object's length, None if there is none."""

    def entry(self, name: str) -> Stored | None:
        """The object as a listing shows it, None if there is none."""

    def sha256(self, name: str) -> str:
        """The lower-case hex digest of the object's bytes."""

    def names(self, prefix: str = "") -> Iterator[str]:
        """Every object below ``prefix`` (a folder, or everything), in no promised order."""

    def entries(self, prefix: str = "") -> Iterator[Stored]:
        """Every object below ``prefix`` (a folder, or everything), in no promised order. Memory does not grow with their number."""

    def writer(self, name: str, *, durable: bool = True) -> ObjectWriter:
        """Begin a new object of unknown length.

        One that need not be durable may be lost, or have other bytes, after a loss of power, until ``sync`` was given its name.
        """

    def move(self, source: str, target: str) -> bool:
        """Rename, replacing the target. False if the source is gone and the target is there, whatever it holds.

        Survives a loss of power once a later ``put`` into the target's folder returned.
        """

    def place(self, source: str, target: str) -> bool:
        """As ``move``, but the source may stay where another request would be needed to remove it."""

    def adopt(self, uri: str, found: Stored, target: str) -> bool:
        """Copy an object that a listing of another dataset root showed, if it is still that very one, without moving its bytes here.

        False where this storage cannot copy from there.
        """

    def sync(self, names: Iterable[str] = ()) -> None:
        """Returns when these objects, and renames and removals in the dataset's own folder, survive a loss of power."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Keeps other runs out of what is done inside: one publication or clean-up at a time.

        A run that dies leaves nothing locked. Raises StorageError when another holds it for a minute. Where the storage
        cannot lock, nothing is kept out.
        """

    def delete(self, name: str) -> None:
        """Remove an object or a folder of them, and the folders that hold nothing then. No error if it is gone already."""

    def discard_unfinished(self, prefix: str = "") -> None:
        """Remove what writers that were killed left below ``prefix`` and no name shows. Writers that live fail by it."""

    def fetch(self, name: str, path: str, version: str = "") -> None:
        """Copy a whole object into a new file of this machine, at ``path``. After an error, what is there is no object.

        ``version``: StorageError where it has another by now.
        """

    def read_into(self, name: str, view: memoryview, begin: int = 0) -> None:
        """Fill the buffer with the object's bytes from ``begin`` on; an error where there are fewer."""

    def wholes(self, wanted: Iterable[tuple[str, int]]) -> Iterator[Whole | None]:
        """The objects of these names, which are thought to have so many bytes, in this order; None for one that is not there.

        Many are asked for ahead, as far as they hold some 32 MiB or one is larger, and none any more once this is closed.
        """

    def open(self, name: str, until: int | None = None, version: str = "") -> BinaryIO:
        """The object as an unbuffered, seekable file, read ahead where that pays. Reads raise OSError or StorageError.

        ``until``: where it will hardly be read beyond. ``version``: StorageError where it has another by now.
        """

    def local_path(self, name: str) -> str:
        """A path on this machine at which the object's bytes can be mapped; an error where it is not local."""


def is_safe_name(name: str) -> bool:
    """Whether ``name`` is a ``/``-separated path that stays below the folder it is joined to."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    if not name or "\0" in name or "\\" in name:
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


def require_safe(name: str, uri: str) -> None:
    """Raises StorageError for a name that does not stay below ``uri``: names also come from manifests of unknown origin."""
    if not is_safe_name(name):
        raise StorageError(f"expected a name below {uri}, got {name!r}; do not use this dataset before you know who made it")


def open_storage(uri: str) -> Storage:
    """The storage a user's text names. Raises UsageError for a scheme no storage serves, and for an ``s3://`` that is mistyped."""
    scheme, separator, _ = uri.partition("://")
    if separator and scheme != "file":
        if scheme == "local" or scheme not in plugins.names("storage"):
            raise UsageError(f"expected a path of this machine or s3://bucket/prefix, got {uri}; no other address is served")
        storage: Storage = plugins.load("storage", scheme)(uri)
        return storage
    if _BUCKET_MISTYPED.match(uri):  # else a whole dataset would go into a folder of that name
        raise UsageError(f"expected s3://bucket/prefix, got {uri}; a folder of this machine whose name begins so is ./{uri}")
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
