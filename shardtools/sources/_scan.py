"""Listing files below a folder: one pass of scandir, sizes and times with it, nothing kept per file but one bytes object."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from shardtools.errors import StorageError, UsageError
from shardtools.sources._bucket_scan import first_objects, scan_bucket
from shardtools.sources._inputs import LISTED_TWICE, Input
from shardtools.sources._scanned import Scan, skip_reason
from shardtools.units import printable

UNREADABLE_BYTES = -1
"""The size of a file whose metadata could not be read; reading it will say why."""
_MIN_SUBTREES = 16
_GONE = os.stat_result([0] * 10)


@dataclass(frozen=True)
class Subtree:
    """A part of an input that can be listed by itself."""

    root: int
    """Index of the input."""
    path: bytes
    folder: bytes
    """Its path relative to the input."""
    ancestors: tuple[tuple[int, int], ...] = ()
    """Device and inode of every folder above it."""
    recurses: bool = True


def subtrees(root: int, given: Input) -> list[Subtree]:
    """The tree of a folder in parts that are worth spreading over processes."""
    whole = Subtree(root, os.fsencode(given.root), b"")
    parts: list[Subtree] = []
    pending = [whole]
    while pending and len(pending) + len(parts) < _MIN_SUBTREES:
        this = pending.pop(0)
        parts.append(Subtree(root, this.path, this.folder, this.ancestors, recurses=False))
        with _one_sentence(this.path):
            if _identity(os.stat(this.path)) not in this.ancestors:
                pending += _inner(this, _subfolders(this.path))
    return parts + pending


def scan(given: Input) -> Scan:
    """Every file of an input. Raises StorageError for a folder that cannot be listed."""
    if given.is_remote:
        return scan_bucket(given)
    return scan_subtree(Subtree(0, os.fsencode(given.root), b""), given.paths)


def scan_subtree(subtree: Subtree, paths: Sequence[bytes] | None = None) -> Scan:
    """Every file of a part of an input, or of the listed paths in it."""
    found = Scan()
    if paths is None:
        _scan_tree(subtree, found)
    else:
        _scan_listed(subtree.path, paths, found)
    found.sort()
    return found


def first_files(given: Input, count: int) -> list[bytes]:
    """Paths of some files that a scan would list: of each folder in turn, its files before its subfolders, by their bytes.

    A look that ends at ``count`` files, or at ``count`` folders, and that no order of directory entries changes.
    """
    if given.paths is not None:
        return nsmallest(count, given.paths)
    if given.is_remote:
        return first_objects(given, count)
    found: list[bytes] = []
    pending = [Subtree(0, os.fsencode(given.root), b"")]
    for _ in range(count):
        if not pending or len(found) == count:
            break
        this = pending.pop()
        with _one_sentence(this.path):
            if _identity(os.stat(this.path)) in this.ancestors:
                continue
            with os.scandir(this.path) as listing:
                names = nsmallest(count - len(found), (e.name for e in listing if not skip_reason(e.name) and _may_be_file(e)))
            found += [os.path.join(this.folder, name) for name in names]
            if len(found) < count:
                pending += reversed(_inner(this, _subfolders(this.path)))
    return found


def _scan_tree(subtree: Subtree, found: Scan) -> None:
    # A stack of its own, since folders may nest deeper than Python recurses.
    pending = [subtree]
    while pending:
        this = pending.pop()
        with _one_sentence(this.path):
            if _identity(os.stat(this.path)) in this.ancestors:
                found.skipped["link loop"] += 1
                continue
            subfolders = _scan_folder(this.path, this.folder, found)
            if this.recurses:
                pending += _inner(this, subfolders)


def _inner(outer: Subtree, subfolders: Sequence[bytes]) -> list[Subtree]:
    ancestors = (*outer.ancestors, _identity(os.stat(outer.path)))
    prefix = outer.folder + b"/" if outer.folder else b""
    return [Subtree(outer.root, outer.path + b"/" + name, prefix + name, ancestors) for name in subfolders]


def _subfolders(path: bytes) -> list[bytes]:
    with os.scandir(path) as listing:
        return sorted(entry.name for entry in listing if not skip_reason(entry.name) and _is_folder(entry))


def _is_folder(entry: "os.DirEntry[Any]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself


def _may_be_file(entry: "os.DirEntry[Any]") -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


@contextmanager
def _one_sentence(path: bytes) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"could not list the folder {printable(path)}: {error.strerror}; give this user the permission or leave the folder out"
        ) from error


def _scan_folder(path: bytes, folder: bytes, found: Scan) -> list[bytes]:
    """Records the folder's files and returns the names of its subfolders."""
    subfolders: list[bytes] = []
    entries: list[bytes] = []
    # By descriptor: the kernel then looks up one name per file instead of the whole path.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for text in os.listdir(fd):
            if text[0] in "._T" and (reason := skip_reason(os.fsencode(text))):
                found.skipped[reason] += 1
                continue
            try:
                status = os.stat(text, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                status = _GONE
            name = os.fsencode(text)
            if stat.S_ISREG(status.st_mode):
                entries.append(_entry(name, status, found))
            elif stat.S_ISDIR(status.st_mode):
                subfolders.append(name)
            elif stat.S_ISLNK(status.st_mode) or status is _GONE:
                _follow(fd, name, entries, subfolders, found)
            else:
                found.skipped["not a regular file"] += 1
    finally:
        os.close(fd)
    if entries:
        found.folders[folder] = entries
    return subfolders


def _follow(fd: int, name: bytes, entries: list[bytes], subfolders: list[bytes], found: Scan) -> None:
    try:
        status = os.stat(name, dir_fd=fd)
    except OSError:
        # A link to nothing, or a file that vanished, is planned all the same, so that it is counted as a bad sample.
        entries.append(b"%b\0%d\0%d" % (name, UNREADABLE_BYTES, 0))
        return
    if stat.S_ISREG(status.st_mode):
        entries.append(_entry(name, status, found))
    elif stat.S_ISDIR(status.st_mode):
        subfolders.append(name)
    else:
        found.skipped["not a regular file"] += 1
        return
    found.num_links += 1


def _entry(name: bytes, status: os.stat_result, found: Scan) -> bytes:
    modified_ns = status.st_mtime_ns
    if modified_ns > found.newest_ns:
        found.newest_ns = modified_ns
    if name.count(b".") > 1:
        found.has_dotted_stems = True
    return b"%b\0%d\0%d" % (name, status.st_size, modified_ns)


def _scan_listed(root: bytes, paths: Sequence[bytes], found: Scan) -> None:
    for path in paths:
        folder, name = os.path.split(path)
        shown = printable(path)
        try:
            status = os.stat(os.path.join(root, path))
        except OSError as error:
            raise UsageError(f"expected a readable file in the list of paths, got {shown}: {error.strerror}") from None
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"expected only files in the list of paths, got {shown}, which is none; give folders as arguments")
        found.folders.setdefault(folder, []).append(_entry(name, status, found))
    if len(set(paths)) < len(paths):
        raise UsageError(LISTED_TWICE)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
