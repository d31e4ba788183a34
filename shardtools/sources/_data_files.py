"""Which files of the inputs hold records of a kind: JSON lines, tables."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from shardtools.errors import DuplicateKeyError, UsageError
from shardtools.sources import Input
from shardtools.sources._scan import scan
from shardtools.sources._streams import Window

COMPRESSIONS = (b".gz", b".zst")


@dataclass(frozen=True)
class DataFile:
    """One input file as scanned."""

    root: int
    """Index of the input it belongs to."""
    path: bytes
    """Relative to the input's folder."""
    num_bytes: int
    version: bytes

    def window(self) -> Window:
        """All of it."""
        return Window(self.path, 0, -1, self.num_bytes, self.version)


@dataclass(frozen=True)
class DataFiles:
    """What inputs hold."""

    files: list[DataFile]
    """Ordered by input, then by the bytes of their paths."""
    skipped: dict[str, int]
    """What was left out, counted."""
    newest_ns: int
    """The latest modification of any of them; of objects, of anything that was listed."""


class HasPath(Protocol):
    """A file of an input."""

    @property
    def root(self) -> int: ...

    @property
    def path(self) -> bytes: ...


_F = TypeVar("_F", bound=HasPath)


def data_files(inputs: Sequence[Input], suffixes: Sequence[str], kind: str) -> DataFiles:
    """The files of folders that end in one of the suffixes, and every file that was named. Raises UsageError where there are none."""
    files: list[DataFile] = []
    skipped: Counter[str] = Counter()
    newest_ns = 0
    for root, given in enumerate(inputs):
        found = scan(given)
        skipped += found.skipped
        stored: list[DataFile] = []
        for folder, entry in found.entries():
            name, num_bytes, version = entry.split(b"\0")
            path = os.path.join(folder, name)
            if given.paths is None and not os.fsdecode(path).lower().endswith(tuple(suffixes)):
                skipped[f"not {kind}"] += 1
                continue
            stored.append(DataFile(root, path, max(int(num_bytes), 0), version))
        # The version of a file is its time, that of an object is not.
        newest_ns = max(newest_ns, found.newest_ns if given.is_remote else max((int(file.version) for file in stored), default=0))
        files += stored
    if not files:
        plain = [suffix for suffix in suffixes if not suffix.endswith((".gz", ".zst"))]
        packed = ", also .gz or .zst" if len(plain) < len(suffixes) else ""
        raise UsageError(f"expected {' or '.join(plain)} files{packed}, got none in {', '.join(given.root for given in inputs)}")
    return DataFiles(sorted(files, key=lambda file: (file.root, file.path)), dict(sorted(skipped.items())), newest_ns)


def refuse_same_prefixes(files: Sequence[_F], roots: Sequence[str], prefix_of: Callable[[bytes], bytes]) -> None:
    """Raises DuplicateKeyError for two files whose keys would be the same."""
    seen: dict[bytes, _F] = {}
    for file in files:
        other = seen.setdefault(prefix_of(file.path), file)
        if other is not file:
            places = [f"{roots[f.root]}/{os.fsdecode(f.path)}" for f in (other, file)]
            raise DuplicateKeyError(
                f"expected files whose paths differ before the suffix, since keys are made of them, got {places[0]} and {places[1]}; "
                "rename one, pack their parent folder, or take keys from the records with --key FIELD"
            )


def without_suffix(path: bytes, suffixes: Sequence[bytes]) -> bytes:
    """The path without the first of the suffixes that it ends in."""
    for suffix in suffixes:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)]
    return path
