"""Folders of this machine, made and synced so that what lies in them survives a loss of power."""

import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress

from shardtools.storage import one_sentence
from shardtools.threads import in_order

_SYNCS_AT_ONCE = 16
"""A file system brings what is asked for at the same time to the disk together: eight threads take a twentieth of one's time."""


def make_folders(path: str) -> None:
    """Make a folder and those above it; a new one survives a loss of power like the files that will be in it."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        # Another run may be making it too.
        with suppress(FileExistsError):
            os.mkdir(folder)
        sync_folder(folder)


def remove_tree(path: str) -> None:
    # Another run may still be writing into the folder; what it leaves, it removes itself.
    shutil.rmtree(path, ignore_errors=True)


def remove_empty(path: str, root: str) -> None:
    """Remove a folder and those above it, below the root, as far as they hold nothing."""
    with suppress(OSError):
        while path != root:
            os.rmdir(path)
            path = os.path.dirname(path)


def sync_folder(path: str) -> None:
    """The folder that the path lies in."""
    _sync(os.path.dirname(path), os.O_DIRECTORY)


def sync_files(paths: Sequence[str]) -> None:
    """The files and their names."""

    def sync(path: str, _: threading.Event) -> None:
        # What another run removed meanwhile is missed by whoever names it.
        with one_sentence("write", path), suppress(FileNotFoundError):
            _sync(path)

    folders = {os.path.dirname(path) for path in paths}
    for _ in in_order(sync, [*paths, *sorted(folders)], min(_SYNCS_AT_ONCE, max(len(paths), 1))):
        pass


def _sync(path: str, flags: int = 0) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
