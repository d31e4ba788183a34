"""What a command line names as input: folders, files and lists of paths, each once."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools.datasets import is_pattern, survey_dataset
from shardtools.errors import UsageError
from shardtools.places import is_there, join
from shardtools.storage import is_safe_name, open_storage

LISTED_TWICE = "expected every path once in the list of paths, got one twice"


@dataclass(frozen=True)
class Input:
    """A folder to read from, whole or only the listed files."""

    root: str
    """Absolute path, or ``s3://bucket/prefix``."""
    paths: tuple[bytes, ...] | None = None
    """Paths relative to the root, ``/``-separated; None means everything below it."""

    @property
    def is_remote(self) -> bool:
        """It lies in an object store."""
        return is_uri(self.root)


def is_uri(text: str) -> bool:
    """Whether the text names a place in an object store, ``s3://bucket/prefix``, and no path of this machine."""
    return text.startswith("s3://")


def resolve_inputs(arguments: Sequence[str | Input]) -> list[Input]:
    """The inputs a command line names: folders, files, ``s3://bucket/prefix``, ``@list.txt``, or ``-`` for a list on standard input.

    Shards may also be named by patterns, as ``survey_dataset`` takes them. What is an input already stays as it is. A list
    holds one path a line, or NUL-separated paths. Raises UsageError for a path that does not exist, and for one that is inside
    another.
    """
    inputs: list[Input] = []
    for argument in arguments:
        if isinstance(argument, Input):
            inputs.append(argument)
        elif argument == "-":
            inputs += _listed(sys.stdin.buffer.read(), "standard input")
        elif argument.startswith("@"):
            inputs += _listed(_read_list(argument[1:]), argument[1:])
        elif is_pattern(argument) and not is_there(argument):
            inputs.append(_selected(argument))
        elif is_uri(argument):
            inputs.append(_object_or_folder(argument))
        elif os.path.isdir(argument):
            inputs.append(Input(_absolute(argument)))
        elif os.path.exists(argument):
            folder, name = os.path.split(_absolute(argument))
            inputs.append(Input(folder, (os.fsencode(name),)))
        else:
            open_storage(argument)  # says what is wrong with an address
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
            both = set(known.paths or given.paths or ()) & set(given.paths or known.paths or ())
            place = join(given.root, os.fsdecode(min(both))) if both else given.root
            raise UsageError(f"expected every input once, got {place} twice; leave one of the two out")
        else:
            by_root[given.root] = Input(given.root, known.paths + given.paths)
    return list(by_root.values())


def _refuse_overlaps(inputs: Sequence[Input]) -> None:
    """Raises UsageError where one input would be read a second time as part of another."""
    folders: dict[str, str] = {}
    for given in inputs:
        if given.paths is None and (known := folders.setdefault(_real(given.root), given.root)) != given.root:
            raise UsageError(f"expected every input once, got {known} and {given.root}, which are the same folder; leave one out")
    # A link inside a folder is followed, so what lies below it as it is written counts as well.
    folders |= {given.root: given.root for given in inputs if given.paths is None}
    listed: dict[str, tuple[int, str]] = {}
    for index, given in enumerate(inputs):
        for shown, real in [(given.root, _real(given.root))] if given.paths is None else _listed_files(given):
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
            real_folders[folder] = _real(folder)
        yield os.path.join(folder, name), os.path.join(real_folders[folder], name)


def _real(path: str) -> str:
    return path if is_uri(path) else os.path.realpath(path)


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


def _selected(pattern: str) -> Input:
    """The shards that a pattern names: ``data-{0000..0010}.tar``. Raises UsageError where one of them is not there."""
    dataset = survey_dataset(pattern)
    missing = [problem for problem in dataset.problems if problem.kind == "missing-file"]
    if missing:
        raise UsageError(f"expected every shard that {pattern} names, got none named {missing[0].name} in {dataset.uri}; mend the pattern")
    return Input(dataset.uri, tuple(os.fsencode(shard.name) for shard in dataset.shards))


def _object_or_folder(uri: str) -> Input:
    """The object of that name, or what lies below it. Raises UsageError where there is neither, or both."""
    storage = open_storage(uri)
    folder, _, name = storage.uri.rpartition("/")
    is_below = next(storage.entries(), None) is not None
    # That of a bucket has no name in it.
    found = None if uri.endswith("/") or folder == "s3:/" else open_storage(folder).entry(name)
    # Some programs mark a folder by an empty object of its name.
    if is_below and (found is None or not found.num_bytes):
        return Input(storage.uri)
    if found is None:
        raise UsageError(f"expected an object or a folder to read, got {uri}, which does not exist")
    if is_below:
        raise UsageError(f"expected an object or a folder to read, got both at {uri}; add a / for the folder, or list the object with @")
    return Input(folder, (os.fsencode(name),))


def _listed(text: bytes, origin: str) -> list[Input]:
    separator = b"\0" if b"\0" in text else b"\n"
    lines = [line for line in text.split(separator) if line.strip()]
    if not lines:
        raise UsageError(f"expected at least one path in the list from {origin}, got none")
    uris = [line for line in map(os.fsdecode, lines) if is_uri(line)]
    if uris and len(uris) < len(lines):
        raise UsageError(f"expected s3:// addresses or paths of this machine in the list from {origin}, got both; make two lists")
    return _listed_objects(uris, origin) if uris else [_listed_files_of(lines, origin)]


def _listed_objects(uris: Sequence[str], origin: str) -> list[Input]:
    """One input for each bucket."""
    keys: dict[str, list[str]] = {}
    for uri in uris:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        if not bucket or not is_safe_name(key):
            raise UsageError(f"expected s3://bucket/key without empty parts, . and .. in it in the list from {origin}, got {uri!r}")
        keys.setdefault(bucket, []).append(key)
    inputs = []
    for bucket, names in keys.items():
        folder = os.path.commonpath([os.path.dirname(name) for name in names])
        paths = tuple(os.fsencode(name[len(folder) :].lstrip("/")) for name in names)
        inputs.append(Input(f"s3://{bucket}/{folder}" if folder else f"s3://{bucket}", paths))
    return inputs


def _listed_files_of(lines: Sequence[bytes], origin: str) -> Input:
    paths = [os.path.normpath(line) for line in lines]
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
