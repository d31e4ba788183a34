"""Reading planned files, with the check that each is still what was planned."""

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

from shardtools.keys import is_legal_field
from shardtools.plan import identity
from shardtools.sample import HEAD_BYTES, Batch, Reject, RejectSink
from shardtools.sources._layout import LABEL_FIELD, PATH_FIELD, Layout

_BATCH_BYTES = 1 << 20
_BATCH_SAMPLES = 256
# A FIFO that took a planned file's place would block an open without O_NONBLOCK for ever.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# One read call returns at most 2 GiB - 4 KiB.
_MAX_READ_BYTES = 1 << 30

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
            values = self._read_sample(int(root), folder, files)
            if values is None:
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

    def _read_sample(self, root: int, folder: bytes, files: Sequence[PlannedFile]) -> dict[str, Any] | None:
        """The sample's values by stored name; None after a reject."""
        values: dict[str, Any] = {}
        taken: dict[str, bytes] = {}
        for field, num_bytes, name in files:
            rule = self._rule_of.get(field)
            if rule is None:
                continue
            path = join(folder, name)
            if rule.name in taken:
                sentence = f"expected one file for the field {rule.name!r} of a sample, got {shown(taken[rule.name])} too; rename one or choose --group file"
                return self._refuse("two-files-one-field", path, sentence)
            if not is_legal_field(field):
                sentence = (
                    f"expected an extension of letters, digits, _ and inner dots, got {field!r}; rename the file or choose another --group"
                )
                return self._refuse("illegal-field", path, sentence)
            data = self._read_file(root, path, num_bytes)
            if data is None:
                return None
            values[self._layout.stored_names[field]] = data
            taken[rule.name] = path
        for name in self._required:
            if name not in taken:
                sentence = f"expected a file for the field {name!r} too, got only {', '.join(taken) or 'others'}; --fields marks a field optional with {name}?"
                return self._refuse("missing-field", join(folder, files[0][2]), sentence)
        if self._layout.labels is not None:
            values[LABEL_FIELD] = self._layout.label_of.get(folder.partition(b"/")[0])
            if values[LABEL_FIELD] is None:
                sentence = (
                    "expected the file in a folder that names its label, got it beside those folders; move it or leave --label-from out"
                )
                return self._refuse("no-label", join(folder, files[0][2]), sentence)
        if self._layout.keep_path:
            values[PATH_FIELD] = shown(join(folder, files[0][2]))
        return values

    def _read_file(self, root: int, path: bytes, num_bytes: int) -> bytes | None:
        """The file's bytes, exactly as many as planned; None after a reject."""
        if num_bytes > self._layout.max_file_bytes:
            limit = self._layout.max_file_bytes
            return self._refuse(
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
            return self._refuse("unreadable", path, f"expected a readable file, got: {error.strerror}; {remedy}")
        if len(data) != num_bytes:
            got = f"more than {num_bytes}" if len(data) > num_bytes else str(len(data))
            sentence = (
                f"expected the {num_bytes} bytes it had when the run was planned, got {got}; run again when nothing writes to the input"
            )
            return self._refuse("changed", path, sentence, data[:HEAD_BYTES])
        return data

    def _refuse(self, reason: str, path: bytes, sentence: str, head: bytes = b"") -> None:
        self._reject(Reject(reason, shown(path), sentence, head))


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
