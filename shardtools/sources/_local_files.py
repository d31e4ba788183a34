"""Planned files of this machine, with the check that each is still what was planned."""

import errno
import os
import stat

from shardtools.errors import StorageError
from shardtools.sample import HEAD_BYTES
from shardtools.sources._planned import Planned, RefusedSampleError, changed, shown
from shardtools.storage import one_sentence, sentence_of

# A FIFO that took a planned file's place would block an open without O_NONBLOCK for ever.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# One read call returns at most 2 GiB - 4 KiB.
_MAX_READ_BYTES = 1 << 30
_BUFFER_BYTES = 1 << 20
# These say something about one file; any other error is the machine's, and would make bad samples of good ones.
_OF_THE_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ELOOP)


class LocalFiles:
    """The files of one input, opened relative to its folder."""

    def __init__(self, root: str) -> None:
        with one_sentence("open", root):
            self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def read(self, sample: Planned) -> list[bytes]:
        """The bytes of every file that is stored. Raises RefusedSampleError."""
        return [self._read_file(path, num_bytes) for path, num_bytes in sample.taken()]

    def close(self) -> None:
        os.close(self._fd)

    def _read_file(self, path: bytes, num_bytes: int) -> bytes:
        """The file's bytes, exactly as many as planned."""
        try:
            fd = os.open(path, _OPEN_FLAGS, dir_fd=self._fd)
            try:
                data = os.read(fd, num_bytes + 1) if num_bytes < _MAX_READ_BYTES else b""
                if len(data) < num_bytes:
                    # More than one call may return, or a file system that answers in parts.
                    del data
                    data = _read_whole(fd, num_bytes + 1)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno not in _OF_THE_FILE:
                raise StorageError(sentence_of("read", shown(path), error)) from error
            gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
            denied = error.errno in (errno.EACCES, errno.EPERM)
            remedy = "give this user the permission to read it" if denied else "something else took its place after planning"
            remedy = "it was removed after planning, or is a link to nothing" if gone else remedy
            raise RefusedSampleError("unreadable", path, f"expected a readable file, got: {error.strerror}; {remedy}") from None
        if len(data) != num_bytes:
            got = f"more than {num_bytes}" if len(data) > num_bytes else str(len(data))
            raise changed(path, num_bytes, got, data[:HEAD_BYTES])
        return data


def _read_whole(fd: int, most_bytes: int) -> bytes:
    """The file from its beginning, into one bytes object: parts would have to be joined, which takes them twice.

    Nothing where it is no regular file any more.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return b""
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb", buffering=_BUFFER_BYTES, closefd=False) as file:
        return file.read(most_bytes)
