"""What lies behind what a user names: files of this machine, or objects of a bucket."""

import hashlib
import os
from collections.abc import Iterator
from itertools import islice

from shardtools.errors import StorageError
from shardtools.storage import Stored, open_storage, sentence_of

NOT_REMOTE = "the data is on this machine, so nothing is requested"
_FEW = 1000
_OURS = ".shardtools"
"""Beside a dataset: nothing in it is read for training."""


def is_remote(uri: str) -> bool:
    """Whether the data is not on this machine's file systems, but in an object store."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme != "file"


def place_of(uri: str) -> str | None:
    """A path on the file system that holds the data; None where the data is not on this machine."""
    if is_remote(uri):
        return None
    path = os.path.abspath(uri.removeprefix("file://"))
    while not os.path.lexists(path):
        # A pattern of shards, such as shards/{00..99}.tar, lies in the folder it begins with.
        path = os.path.dirname(path)
    return path


def files_of(uri: str) -> list[str]:
    """Every regular file a reader of ``uri`` may open, by path; none where the data is not on this machine.

    Links to folders are followed, as readers of folders do, each folder being listed once. Raises StorageError for a folder that
    cannot be listed, UsageError for a pattern that names nothing.
    """
    if place_of(uri) is None:
        return []
    path = os.path.abspath(uri.removeprefix("file://"))
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        # Here, since its libraries need not be there where only ``place_of`` is asked for.
        from shardtools.datasets import is_pattern, open_dataset

        if is_pattern(uri):
            dataset = open_dataset(uri)
            found = (dataset.storage.local_path(shard.name) for shard in dataset.shards)
            return sorted(file for file in found if os.path.isfile(file))
    return sorted(_walk(path))


def objects_of(uri: str) -> Iterator[tuple[str, Stored]]:
    """The root and every object below it that a reader of a remote ``uri`` may ask for. Raises StorageError, UsageError."""
    storage = open_storage(uri)
    found = False
    for entry in storage.entries():
        found = True
        if not entry.name.startswith(f"{_OURS}/"):
            yield storage.uri, entry
    if found:
        return
    root, name = split_object(uri)
    folder = open_storage(root)
    if (one := folder.entry(name)) is not None:
        yield root, one
        return
    from shardtools.datasets import is_pattern, open_dataset

    if is_pattern(uri):
        dataset = open_dataset(uri)
        wanted = {shard.name for shard in dataset.shards}
        yield from ((dataset.storage.uri, entry) for entry in dataset.storage.entries() if entry.name in wanted)


def is_one(uri: str) -> bool:
    """Whether it is the name of one file or object."""
    if not is_remote(uri):
        return os.path.isfile(uri.removeprefix("file://"))
    root, name = split_object(uri)
    return root.count("/") > 1 and open_storage(root).num_bytes(name) is not None


def names_in(uri: str) -> list[str] | None:
    """What lies right in a folder; of objects, as far as the first thousand below it tell. None where it is no folder."""
    if is_remote(uri):
        names = (entry.name.partition("/")[0] for entry in islice(open_storage(uri).entries(), _FEW))
        return list(dict.fromkeys(names)) or None
    path = uri.removeprefix("file://")
    return os.listdir(path) if os.path.isdir(path) else None


def split_object(uri: str) -> tuple[str, str]:
    """What an object's URI lies below, and its name there."""
    root, _, name = uri.rstrip("/").rpartition("/")
    return root, name


def stored_bytes(uri: str) -> int | None:
    """Of all files or objects a reader may open; None where there are none. Raises StorageError, UsageError."""
    if is_remote(uri):
        return sum(entry.num_bytes for _, entry in objects_of(uri)) or None
    return sum(os.stat(path).st_size for path in files_of(uri)) or None


def version_of(uri: str) -> str:
    """Another text where a file or object came, went or was written again. Raises StorageError, UsageError."""
    digest = hashlib.sha256()
    if is_remote(uri):
        # Listings come in no promised order, and there may be millions.
        total = 0
        for root, entry in objects_of(uri):
            text = f"{root}/{entry.name}\0{entry.num_bytes}\0{entry.version}"
            total += int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest())
        digest.update(b"%d" % total)
    for path in files_of(uri):
        try:
            status = os.stat(path)
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
        except FileNotFoundError:
            digest.update(b"gone")
    return digest.hexdigest()


def _walk(folder: str) -> Iterator[str]:
    pending, seen = [folder], set()
    while pending:
        this = pending.pop()
        try:
            status = os.stat(this)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(this) as entries:
                for entry in entries:
                    if entry.is_dir():
                        pending += [entry.path] if entry.name != _OURS else []
                    elif entry.is_file():
                        yield entry.path
        except OSError as error:
            raise StorageError(sentence_of("list", this, error)) from error
