"""Listing files below a folder: one pass of scandir, sizes and times with it, nothing kept per file but one bytes object."""

import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardtools.errors import StorageError, UsageError
from shardtools.sources import Input

UNREADABLE_BYTES = -1
"""The size of a file whose metadata could not be read; reading it will say why."""
_SKIPPED_NAMES = {b"__pycache__": "__pycache__", b"Thumbs.db": "Thumbs.db"}


@dataclass
class Scan:
    """Files of one input, sorted by folder, then name, both by bytes."""

    entries: list[bytes] = field(default_factory=list)
    """``folder NUL name NUL size NUL mtime_ns``, the folder relative to the root."""
    skipped: Counter[str] = field(default_factory=Counter)
    num_links: int = 0
    newest_ns: int = 0


def scan(given: Input) -> Scan:
    """Every file of an input. Raises StorageError for a folder that cannot be listed."""
    found = Scan()
    if given.paths is None:
        _scan_tree(os.fsencode(given.root), found)
    else:
        _scan_listed(os.fsencode(given.root), given.paths, found)
    found.entries.sort()
    return found


def skip_reason(name: bytes) -> str | None:
    """Why a name is never data, None if it may be."""
    if name.startswith(b"._"):
        return "AppleDouble"
    return "hidden" if name.startswith(b".") else _SKIPPED_NAMES.get(name)


def _scan_tree(root: bytes, found: Scan) -> None:
    # A stack of its own, since folders may nest deeper than Python recurses.
    pending: list[tuple[bytes, bytes, tuple[tuple[int, int], ...]]] = [(root, b"", ())]
    while pending:
        path, folder, ancestors = pending.pop()
        try:
            this = _identity(os.stat(path))
            if this in ancestors:
                found.skipped["link loop"] += 1
                continue
            for subfolder in _scan_folder(path, folder, found):
                inner = folder + b"/" + subfolder if folder else subfolder
                pending.append((path + b"/" + subfolder, inner, (*ancestors, this)))
        except OSError as error:
            shown = path.decode("utf-8", "backslashreplace")
            raise StorageError(
                f"could not list the folder {shown}: {error.strerror}; give this user the permission or leave the folder out"
            ) from error


def _scan_folder(path: bytes, folder: bytes, found: Scan) -> list[bytes]:
    """Records the folder's files and returns the names of its subfolders."""
    subfolders: list[bytes] = []
    with os.scandir(path) as listing:
        for entry in listing:
            name = entry.name
            if reason := skip_reason(name):
                found.skipped[reason] += 1
            elif entry.is_dir():
                found.num_links += entry.is_symlink()
                subfolders.append(name)
            else:
                _add(entry, folder, name, found)
    return subfolders


def _add(entry: "os.DirEntry[bytes]", folder: bytes, name: bytes, found: Scan) -> None:
    try:
        status = entry.stat()
    except OSError:
        # A link to nothing, or a file that vanished: planned all the same, so that it is counted as a bad sample.
        found.entries.append(b"%b\0%b\0%d\0%d" % (folder, name, UNREADABLE_BYTES, 0))
        return
    if not stat.S_ISREG(status.st_mode):
        found.skipped["not a regular file"] += 1
        return
    if entry.is_symlink():
        found.num_links += 1
    _record(folder, name, status, found)


def _record(folder: bytes, name: bytes, status: os.stat_result, found: Scan) -> None:
    modified_ns = status.st_mtime_ns
    if modified_ns > found.newest_ns:
        found.newest_ns = modified_ns
    found.entries.append(b"%b\0%b\0%d\0%d" % (folder, name, status.st_size, modified_ns))


def _scan_listed(root: bytes, paths: Sequence[bytes], found: Scan) -> None:
    for path in paths:
        folder, name = os.path.split(path)
        shown = path.decode("utf-8", "backslashreplace")
        try:
            status = os.stat(os.path.join(root, path))
        except OSError as error:
            raise UsageError(f"expected a readable file in the list of paths, got {shown}: {error.strerror}") from None
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"expected only files in the list of paths, got {shown}, which is none; give folders as arguments")
        _record(folder, name, status, found)
    if len(set(found.entries)) < len(found.entries):
        raise UsageError("expected every path once in the list of paths, got one twice")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
