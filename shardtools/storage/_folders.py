"""Folders of this machine, made and synced so that what lies in them survives a loss of power."""

import os
import shutil
from contextlib import suppress


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


def sync_folder(path: str) -> None:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
