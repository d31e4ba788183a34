"""A file of this machine while it is written."""

import os
from contextlib import suppress

from shardtools.storage import one_sentence
from shardtools.storage._folders import make_folders

# New files follow the umask, like those of any other program.
_FILE_MODE = 0o666
_WORTH_A_START = 4 << 20
"""From this length on, a sync takes long enough that the disk should be at it while others still work."""


class LocalWriter:
    """A file that is being written; the caller chose a name nobody else looks at, and renames it when it is finished."""

    def __init__(self, path: str, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        self.version = ""
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
            if self._durable:
                os.fsync(self._fd)
            elif os.lseek(self._fd, 0, os.SEEK_CUR) >= _WORTH_A_START:
                _start_writing(self._fd)
            os.close(self._fd)
            self._fd = -1

    def abort(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with one_sentence("delete", self._path), suppress(FileNotFoundError):
            os.unlink(self._path)


def _start_writing(fd: int) -> None:
    """Have the system bring to the disk what it holds of the file, without waiting for it."""
    if hasattr(os, "posix_fadvise"):
        # What this says is that the pages may go. Linux then writes those that may not go yet, and lets go of none of them.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
