"""Files and folders by a pattern of ``*``, ``?``, ``[...]`` and ``**``."""

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from shardtools.errors import StorageError, UsageError
from shardtools.places import is_here, join
from shardtools.storage import open_storage, sentence_of

_WILDCARD = re.compile(r"[*?[]")


class Match(NamedTuple):
    """What a pattern matches."""

    place: str
    is_folder: bool


def has_wildcards(pattern: str) -> bool:
    return _WILDCARD.search(pattern) is not None


def matches(pattern: str) -> list[Match]:
    """Every place that a pattern matches, sorted by its bytes; the pattern is one of ``places``.

    ``*`` stays within one folder, ``**`` stands for any number of folders, none too, and follows no links. Hidden names match
    only where the pattern shows their dot. Raises StorageError where a folder cannot be listed: shards could be missed.
    """
    if is_here(pattern):
        paths = set(_below("/", [part for part in pattern.split("/") if part]))
        found = {Match(path, os.path.isdir(path)) for path in paths}
    else:
        found = set(_listed(pattern))
    return sorted(found, key=lambda match: os.fsencode(match.place))


def _listed(pattern: str) -> Iterator[Match]:
    """In a bucket: of all that lies below the part without wildcards. Whatever names begin with is a folder."""
    parts = pattern.split("/")
    num_plain = next(i for i, part in enumerate(parts) if has_wildcards(part))
    if num_plain < 3:
        raise UsageError(f"expected the name of a bucket without wildcards, got {pattern}; write the bucket out")
    root, wanted = "/".join(parts[:num_plain]), parts[num_plain:]
    folders: set[str] = set()
    for name in open_storage(root).names():
        pieces = name.split("/")
        if _fits(pieces, wanted):
            yield Match(join(root, name), False)
        for i in range(1, len(pieces)):
            folder = "/".join(pieces[:i])
            if folder not in folders:
                folders.add(folder)
                if _fits(pieces[:i], wanted):
                    yield Match(join(root, folder), True)


def _fits(pieces: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a name, folder by folder, is one that the parts of a pattern stand for."""
    if not parts or not pieces:
        return not parts and not pieces
    part, piece, rest = parts[0], pieces[0], parts[1:]
    if part == "**":
        return _fits(pieces, rest or ["*"]) or (not piece.startswith(".") and _fits(pieces[1:], parts))
    return _accepts(part, piece) and _fits(pieces[1:], rest)


def _accepts(part: str, name: str) -> bool:
    if not has_wildcards(part):
        return part == name
    return _compiled(part).match(name) is not None and (not name.startswith(".") or part.startswith("."))


@cache
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


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
        for entry in _entries(folder):
            if _accepts(part, entry.name) and (not rest or entry.is_dir()):
                yield from _below(entry.path, rest)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise StorageError(sentence_of("list", folder, error)) from error
