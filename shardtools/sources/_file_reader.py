"""Reading planned files, with the check that each is still what was planned."""

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

from shardtools.plan import identity
from shardtools.sample import HEAD_BYTES, Batch, Reject, RejectSink
from shardtools.sources._layout import LABEL_FIELD, PATH_FIELD, Layout

_BATCH_BYTES = 1 << 20
_BATCH_SAMPLES = 256
# A FIFO that took a planned file's place would block an open without O_NONBLOCK for ever.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# One read call returns at most 2 GiB - 4 KiB.
_MAX_READ_BYTES = 1 << 30

_ILLEGAL_FIELD = "expected an extension of letters, digits, _ and inner dots, got {!r}; rename the file or choose another --group"
_TWO_FILES = "expected one file for the field {!r} of a sample, got {} too; rename one or choose --group file"
_MISSING_FIELD = "expected a file for the field {0!r} too, got only {1}; --fields marks a field that may be missing with {0}?"
_NO_LABEL = "expected the file in a folder that names its label, got it beside those folders; move it or leave --label-from out"

PlannedFile = tuple[str, int, bytes]
"""Field, planned size, name."""


class FileReader:
    """Turns extents into batches; opens everything relative to the inputs' folders."""

    def __init__(self, layout: Layout, roots: Sequence[str], reject: RejectSink) -> None:
        self._layout = layout
        self._reject = reject
        self._rule_of = {alias: rule for rule in layout.rules for alias in rule.aliases}
        self._required = [rule.name for rule in layout.rules if not rule.optional]
        self._names = sorted({*layout.stored_names.values()})
        self._names += [LABEL_FIELD] * (layout.labels is not None) + [PATH_FIELD] * layout.keep_path
        self._root_fds = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for root in roots]

    def close(self) -> None:
        for fd in self._root_fds:
            os.close(fd)

    def batches(self, extents: Sequence[bytes]) -> Iterator[Batch]:
        batch, origins, batch_bytes = self._begin()
        for packed in extents:
            key, root, folder, *rest = identity(packed).split(b"\0")
            files = [(rest[i].decode(), int(rest[i + 1]), rest[i + 2]) for i in range(0, len(rest), 3)]
            try:
                values = self._read_sample(int(root), folder, files)
            except _RefusedError as refused:
                self._reject(refused.reject)
                continue
            batch.keys.append(key)
            origins.append(join(folder, files[0][2]))
            for name, column in batch.columns.items():
                column.append(values.get(name))
            batch_bytes += sum(file[1] for file in files)
            if batch_bytes >= _BATCH_BYTES or len(batch.keys) >= _BATCH_SAMPLES:
                yield batch
                batch, origins, batch_bytes = self._begin()
        if batch.keys:
            yield batch

    def _begin(self) -> tuple[Batch, list[bytes], int]:
        origins: list[bytes] = []
        return Batch([], {name: [] for name in self._names}, lambda i: shown(origins[i])), origins, 0

    def _read_sample(self, root: int, folder: bytes, files: Sequence[PlannedFile]) -> dict[str, Any]:
        """The sample's values by stored name. Raises _RefusedError for a bad sample."""
        values: dict[str, Any] = {}
        taken: dict[str, bytes] = {}
        for field, num_bytes, name in files:
            path = join(folder, name)
            rule = self._rule_of.get(field)
            if rule is None:
                if self._layout.leaves_out:
                    continue
                raise _RefusedError("illegal-field", path, _ILLEGAL_FIELD.format(field))
            if rule.name in taken:
                raise _RefusedError("two-files-one-field", path, _TWO_FILES.format(rule.name, shown(taken[rule.name])))
            values[self._layout.stored_names[field]] = self._read_file(root, path, num_bytes)
            taken[rule.name] = path
        first = join(folder, files[0][2])
        for required in self._required:
            if required not in taken:
                raise _RefusedError("missing-field", first, _MISSING_FIELD.format(required, ", ".join(taken) or "others"))
        if self._layout.labels is not None:
            values[LABEL_FIELD] = self._layout.label_of.get(folder.partition(b"/")[0])
            if values[LABEL_FIELD] is None:
                raise _RefusedError("no-label", first, _NO_LABEL)
        if self._layout.keep_path:
            values[PATH_FIELD] = shown(first)
        return values

    def _read_file(self, root: int, path: bytes, num_bytes: int) -> bytes:
        """The file's bytes, exactly as many as planned."""
        if num_bytes > self._layout.max_file_bytes:
            limit = self._layout.max_file_bytes
            raise _RefusedError(
                "too-large", path, f"expected at most {limit} bytes, the most the format can hold in one field, got {num_bytes}"
            )
        try:
            fd = os.open(path, _OPEN_FLAGS, dir_fd=self._root_fds[root])
            try:
                data = os.read(fd, min(num_bytes + 1, _MAX_READ_BYTES))
                if len(data) == _MAX_READ_BYTES:
                    data = _read_rest(fd, data, num_bytes)
            finally:
                os.close(fd)
        except OSError as error:
            gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
            remedy = "it was removed after planning, or is a link to nothing" if gone else "give this user the permission to read it"
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


def join(folder: bytes, name: bytes) -> bytes:
    """The path below the root."""
    return folder + b"/" + name if folder else name


def shown(path: bytes) -> str:
    """A path for people and for files of text: bytes that are no UTF-8 as backslash escapes."""
    return path.decode("utf-8", "backslashreplace")


def _read_rest(fd: int, begin: bytes, num_bytes: int) -> bytes:
    data = bytearray(begin)
    while len(data) <= num_bytes and (block := os.read(fd, min(num_bytes + 1 - len(data), _MAX_READ_BYTES))):
        data += block
    return bytes(data)
