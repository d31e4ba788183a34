"""What a command line names as input: folders, files and lists of paths, each once."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools.errors import UsageError


@dataclass(frozen=True)
class Input:
    """A folder to read from, whole or only the listed files."""

    root: str
    """Absolute path."""
    paths: tuple[bytes, ...] | None = None
    """Paths relative to the root, ``/``-separated; None means everything below it."""


def resolve_inputs(arguments: Sequence[str | Input]) -> list[Input]:
    """The inputs a command line names: folders, files, ``@list.txt``, or ``-`` for a list on standard input.

    What is an input already stays as it is. A list holds one path a line, or NUL-separated paths. Raises UsageError for
    a path that does not exist, and for one that is inside another.
    """
    inputs: list[Input] = []
    for argument in arguments:
        if isinstance(argument, Input):
            inputs.append(argument)
        elif argument == "-":
            inputs.append(_listed(sys.stdin.buffer.read(), "standard input"))
        elif argument.startswith("@"):
            inputs.append(_listed(_read_list(argument[1:]), argument[1:]))
        elif os.path.isdir(argument):
            inputs.append(Input(_absolute(argument)))
        elif os.path.exists(argument):
            folder, name = os.path.split(_absolute(argument))
            inputs.append(Input(folder, (os.fsencode(name),)))
        else:
            raise UsageError(f"expected a file or folder to read, got {argument}, which does not exist")
    merged = _merge_same_folder(inputs)
    if len(merged) > 1:
        _refuse_overlaps(merged)
    return merged


def _merge_same_folder(inputs: Sequence[Input]) -> list[Input]:
    """Single files of one folder as one input, so ``*.jsonl`` and the folder itself give the same plan."""
    by_root: dict[str, Input] = {}
    for given in inputs:
        known = by_root.get(given.root)
        if known is None:
            by_root[given.root] = given
        elif known.paths is None or given.paths is None or set(known.paths) & set(given.paths):
            raise UsageError(f"expected every input once, got {given.root} or a file in it twice")
        else:
            by_root[given.root] = Input(given.root, known.paths + given.paths)
    return list(by_root.values())


def _refuse_overlaps(inputs: Sequence[Input]) -> None:
    """Raises UsageError where one input would be read a second time as part of another."""
    folders: dict[str, str] = {}
    for given in inputs:
        if given.paths is None and (known := folders.setdefault(os.path.realpath(given.root), given.root)) != given.root:
            raise UsageError(f"expected every input once, got {known} and {given.root}, which are the same folder; leave one out")
    # A link inside a folder is followed, so what lies below it as it is written counts as well.
    folders |= {given.root: given.root for given in inputs if given.paths is None}
    listed: dict[str, tuple[int, str]] = {}
    for index, given in enumerate(inputs):
        for shown, real in [(given.root, os.path.realpath(given.root))] if given.paths is None else _listed_files(given):
            above = next((folders[f] for path in (real, shown) for f in _folders_above(path) if f in folders), None)
            if above is not None:
                raise UsageError(f"expected every input once, got {shown}, which is inside {above}; leave one of the two out")
            other, known = listed.setdefault(real, (index, shown))
            if other != index:
                raise UsageError(f"expected every input once, got {known} and {shown}, which are the same file; leave one out")


def _listed_files(given: Input) -> Iterator[tuple[str, str]]:
    """Each listed file's path as given and with the links of its folder resolved."""
    real_folders: dict[str, str] = {}
    for path in map(os.fsdecode, given.paths or ()):
        folder, name = os.path.split(os.path.join(given.root, path))
        if folder not in real_folders:
            real_folders[folder] = os.path.realpath(folder)
        yield os.path.join(folder, name), os.path.join(real_folders[folder], name)


def _folders_above(path: str) -> Iterator[str]:
    while (folder := os.path.dirname(path)) != path:
        yield folder
        path = folder


def _read_list(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"expected a readable list of paths, got {path}: {error.strerror}") from None


def _listed(text: bytes, origin: str) -> Input:
    separator = b"\0" if b"\0" in text else b"\n"
    paths = [os.path.normpath(line) for line in text.split(separator) if line.strip()]
    if not paths:
        raise UsageError(f"expected at least one path in the list from {origin}, got none")
    absolute = [path for path in paths if path.startswith(b"/")]
    if not absolute and not any(path.startswith(b"../") for path in paths):
        return Input(_absolute("."), tuple(paths))
    if absolute and len(absolute) < len(paths):
        raise UsageError(f"expected paths that are all absolute or all relative in the list from {origin}, got both")
    here = os.fsencode("/" if absolute else _absolute("."))
    full = [os.path.normpath(os.path.join(here, path)) for path in paths]
    root = os.path.commonpath([os.path.dirname(path) for path in full])
    return Input(os.fsdecode(root), tuple(os.path.relpath(path, root) for path in full))


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise UsageError("expected to be in a folder that exists, got one that was removed; change to another and run again") from None
