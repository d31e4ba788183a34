"""Reading planned files, with the check that each is still what was planned."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

from shardtools.errors import StorageError
from shardtools.extents import identity
from shardtools.sample import HEAD_BYTES, Batch, Reject, RejectSink
from shardtools.sources import PATH_FIELD
from shardtools.sources._layout import LABEL_FIELD, Layout, Shape
from shardtools.storage import one_sentence, sentence_of

_BATCH_BYTES = 1 << 20
_BATCH_SAMPLES = 256
# A FIFO that took a planned file's place would block an open without O_NONBLOCK for ever.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# One read call returns at most 2 GiB - 4 KiB.
_MAX_READ_BYTES = 1 << 30
_BUFFER_BYTES = 1 << 20
# These say something about one file; any other error is the machine's, and would make bad samples of good ones.
_OF_THE_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ELOOP)

_NO_LABEL = "expected the file in a folder that names its label, got it beside those folders; move it or leave --label-from out"


class FileReader:
    """Turns extents into batches; opens everything relative to the inputs' folders."""

    def __init__(self, layout: Layout, roots: Sequence[str], reject: RejectSink) -> None:
        self._layout = layout
        self._reject = reject
        self._names = sorted({*layout.stored_names.values()})
        self._names += [LABEL_FIELD] * (layout.labels is not None) + [PATH_FIELD] * layout.keep_path
        self._max_file_bytes = layout.max_file_bytes
        self._has_extras = layout.labels is not None or layout.keep_path
        self._root_fds: list[int] = []
        try:
            for root in roots:
                with one_sentence("open", root):
                    self._root_fds.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except StorageError:
            self.close()
            raise

    def close(self) -> None:
        for fd in self._root_fds:
            os.close(fd)

    def batches(self, extents: Sequence[bytes]) -> Iterator[Batch]:
        batch, taken, batch_bytes = self._begin()
        for packed in extents:
            key, root, folder, *rest = identity(packed).split(b"\0")
            names, sizes = rest[2::3], list(map(int, rest[1::3]))
            shape = self._layout.shape(tuple(rest[::3]))
            try:
                extras = self._extras(shape, folder, names) if shape.fault or self._has_extras else None
                values = self._read_files(self._root_fds[int(root)], folder, compress(zip(names, sizes, strict=True), shape.taken))
            except _RefusedError as refused:
                self._reject(refused.reject)
                continue
            batch.keys.append(key)
            taken.append(packed)
            for name, value in zip(shape.stored, values, strict=True):
                batch.columns[name].append(value)
            for name in shape.absent:
                batch.columns[name].append(None)
            for name, extra in extras.items() if extras else ():
                batch.columns[name].append(extra)
            batch_bytes += sum(sizes)
            if batch_bytes >= _BATCH_BYTES or len(taken) >= _BATCH_SAMPLES:
                yield batch
                batch, taken, batch_bytes = self._begin()
        if taken:
            yield batch

    def _begin(self) -> tuple[Batch, list[bytes], int]:
        taken: list[bytes] = []
        return Batch([], {name: [] for name in self._names}, lambda i: _first_path(taken[i])), taken, 0

    def _read_files(self, root_fd: int, folder: bytes, files: Iterable[tuple[bytes, int]]) -> list[bytes]:
        prefix = folder + b"/" if folder else b""
        return [self._read_file(root_fd, prefix + name, num_bytes) for name, num_bytes in files]

    def _extras(self, shape: Shape, folder: bytes, names: Sequence[bytes]) -> dict[str, Any]:
        """The fields that no file holds. Raises _RefusedError where the sample is bad by its names alone."""
        if shape.fault is not None:
            fault = shape.fault
            other = shown(join(folder, names[fault.other]))
            raise _RefusedError(fault.reason, join(folder, names[fault.file]), fault.sentence.format(other=other))
        extras: dict[str, Any] = {}
        if self._layout.labels is not None:
            extras[LABEL_FIELD] = self._layout.label_of.get(folder.partition(b"/")[0])
            if extras[LABEL_FIELD] is None:
                raise _RefusedError("no-label", join(folder, names[0]), _NO_LABEL)
        if self._layout.keep_path:
            extras[PATH_FIELD] = shown(join(folder, names[0]))
        return extras

    def _read_file(self, root_fd: int, path: bytes, num_bytes: int) -> bytes:
        """The file's bytes, exactly as many as planned."""
        if num_bytes > self._max_file_bytes:
            limit = self._max_file_bytes
            raise _RefusedError(
                "too-large", path, f"expected at most {limit} bytes, the most the format can hold in one field, got {num_bytes}"
            )
        try:
            fd = os.open(path, _OPEN_FLAGS, dir_fd=root_fd)
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
            raise _RefusedError("unreadable", path, f"expected a readable file, got: {error.strerror}; {remedy}") from None
        if len(data) != num_bytes:
            got = f"more than {num_bytes}" if len(data) > num_bytes else str(len(data))
            sentence = (
                f"expected the {num_bytes} bytes it had when the run was planned, got {got}; run again when nothing writes to the input"
            )
            raise _RefusedError("changed", path, sentence, data[:HEAD_BYTES])
        return data


class _RefusedError(Exception):
    """A sample cannot be taken; carries what the sink is told."""

    def __init__(self, reason: str, path: bytes, sentence: str, head: bytes = b"") -> None:
        super().__init__(sentence)
        self.reject = Reject(reason, shown(path), sentence, head)


def _first_path(packed: bytes) -> str:
    _, _, folder, _, _, name, *_ = identity(packed).split(b"\0")
    return shown(join(folder, name))


def join(folder: bytes, name: bytes) -> bytes:
    """The path below the root."""
    return folder + b"/" + name if folder else name


def shown(path: bytes) -> str:
    """A path for people and for files of text: bytes that are no UTF-8 as backslash escapes."""
    return path.decode("utf-8", "backslashreplace")


def _read_whole(fd: int, most_bytes: int) -> bytes:
    """The file from its beginning, into one bytes object: parts would have to be joined, which takes them twice.

    Nothing where it is no regular file any more.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return b""
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb", buffering=_BUFFER_BYTES, closefd=False) as file:
        return file.read(most_bytes)
