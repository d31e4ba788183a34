"""Folders for the temporary files of one process, which go with it, or with the next run where it was killed."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PREFIX = "shardtools-bench-"
LONGEST_FOLDER = 107 - len("/pymp-12345678/listener-12345678")
"""Bytes of the path of a folder in which workers have their sockets, whose paths the kernel takes up to 107 bytes of."""
_SHORT_FOLDER = "/tmp"
_YOUNG_SECONDS = 600.0
"""A folder that nobody holds yet may be one that was made this moment."""


@contextmanager
def private_folder() -> Iterator[str]:
    """A new folder for a process's temporary files, in ``/tmp`` where the path of the usual one is too long; removed at the end.

    Workers hand batches over through sockets in it: where its path is longer than ``LONGEST_FOLDER``, no batch ever comes.
    It is held by a lock, which ends with this process whatever ends it: what others left and nobody holds is removed first.
    """
    for place in {tempfile.gettempdir(), _SHORT_FOLDER}:
        _remove_abandoned(place)
    folder = _made()
    try:
        held = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks; then it is removed by its own process alone
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        finally:
            os.close(held)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made() -> str:
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    if len(os.fsencode(folder)) <= LONGEST_FOLDER or not os.access(_SHORT_FOLDER, os.W_OK):
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix=_PREFIX, dir=_SHORT_FOLDER)


def _remove_abandoned(place: str) -> None:
    """Our own, of this user, that no process holds."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_SECONDS and _is_free(entry.path):
                        shutil.rmtree(entry.path, ignore_errors=True)


def _is_free(folder: str) -> bool:
    held = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(held)
    return True
