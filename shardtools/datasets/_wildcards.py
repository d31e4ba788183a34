"""Files and folders of this machine by a pattern of ``*``, ``?``, ``[...]`` and ``**``."""

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence

from shardtools.errors import StorageError
from shardtools.storage import sentence_of

_WILDCARD = re.compile(r"[*?[]")


def has_wildcards(pattern: str) -> bool:
    return _WILDCARD.search(pattern) is not None


def matches(pattern: str) -> list[str]:
    """Every path that an absolute pattern matches, sorted by its bytes.

    ``*`` stays within one folder, ``**`` stands for any number of folders, none too, and follows no links. Hidden names match
    only where the pattern shows their dot. Raises StorageError where a folder cannot be listed: shards could be missed.
    """
    found = set(_below("/", [part for part in pattern.split("/") if part]))
    return sorted(found, key=os.fsencode)


def _below(folder: str, parts: Sequence[str]) -> Iterator[str]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _below(folder, rest or ["*"])
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _below(entry.path, parts)
    elif not has_wildcards(part):
        path = os.path.join(folder, part)
        if os.path.lexists(path) if not rest else os.path.isdir(path):
            yield from _below(path, rest)
    else:
        accepts = re.compile(fnmatch.translate(part)).match
        for entry in _entries(folder):
            if accepts(entry.name) and (not entry.name.startswith(".") or part.startswith(".")) and (not rest or entry.is_dir()):
                yield from _below(entry.path, rest)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise StorageError(sentence_of("list", folder, error)) from error
