"""The local files behind what a user names."""

import os
from collections.abc import Iterator

from shardtools.errors import StorageError
from shardtools.storage import sentence_of

_OURS = ".shardtools"
"""Beside a dataset: nothing in it is read for training."""


def place_of(uri: str) -> str | None:
    """A path on the file system that holds the data; None where the data is not on this machine."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme != "file":
        return None
    path = os.path.abspath(rest if separator else uri)
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
