"""Inputs: what samples are read from, planned from metadata first, then read extent by extent."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from shardtools.errors import UsageError
from shardtools.formats import ShardFormat
from shardtools.plan import Partition, ShardLimit
from shardtools.sample import Batch, Field, RejectSink
from shardtools.units import plural


@dataclass(frozen=True)
class Input:
    """A folder to read from, whole or only the listed files."""

    root: str
    """Absolute path."""
    paths: tuple[bytes, ...] | None = None
    """Paths relative to the root, ``/``-separated; None means everything below it."""


Spread = Callable[[Callable[[Any, Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a picklable function with each item and a callback for events; yields the results in any order."""


def spread_here(function: Callable[[Any, Any], Any], items: Sequence[Any]) -> Iterable[Any]:
    """One item after the other in this process."""
    return [function(item, lambda _: None) for item in items]


@dataclass(frozen=True)
class SurveyRequest:
    """What a source must know to plan."""

    inputs: Sequence[Input]
    format: ShardFormat
    limit: ShardLimit
    shuffle_seed: int | None = None
    spread: Spread = spread_here
    """How work on many items is done; planning may use whatever will run the partitions."""
    encodings: dict[str, str] = field(default_factory=dict)
    """MDS encodings the user gave by field name, in place of the inferred ones."""


@dataclass
class Survey:
    """What planning found out."""

    source: Any
    """The source with every automatic choice settled: part of the recipe."""
    fields: tuple[Field, ...]
    partitions: list[Partition]
    preview: list[str]
    """The keys of the first samples."""
    notes: list[str] = field(default_factory=list)
    """Choices made and warnings, each a sentence for people."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Inputs left out by policy, counted by reason."""
    expected_bytes: int = 0
    """Stored bytes of the whole dataset: exact for files, estimated otherwise."""
    num_twins: int = 0
    """Keys that differ from another only by case or Unicode form, where planning knows all keys."""
    newest_ns: int = 0
    """The latest modification time of any input, in nanoseconds since 1970."""


class Source(Protocol):
    """A frozen dataclass whose fields are the source's options."""

    file_suffixes: ClassVar[tuple[str, ...]]
    """Lower-case endings of the files that are this source's without being asked; none: whatever no other source claims."""

    @classmethod
    def from_words(cls, words: Mapping[str, Any]) -> "Source":
        """The source with the options a user gave, by the names of the command line; None where nothing was said."""

    def survey(self, request: SurveyRequest) -> Survey:
        """Plan from metadata and at most the first 1,000 records."""

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink) -> Iterator[Batch]:
        """The samples of the extents, in order. ``roots`` are the inputs' folders on this machine."""


def resolve_inputs(arguments: Sequence[str | Input]) -> list[Input]:
    """The inputs a command line names: folders, files, ``@list.txt``, or ``-`` for a list on standard input.

    What is an input already stays as it is. A list holds one path a line, or NUL-separated paths. Raises UsageError for
    a path that does not exist.
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
            inputs.append(Input(os.path.abspath(argument)))
        elif os.path.exists(argument):
            folder, name = os.path.split(os.path.abspath(argument))
            inputs.append(Input(folder, (os.fsencode(name),)))
        else:
            raise UsageError(f"expected a file or folder to read, got {argument}, which does not exist")
    return _merge_same_folder(inputs)


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
        return Input(os.getcwd(), tuple(paths))
    if absolute and len(absolute) < len(paths):
        raise UsageError(f"expected paths that are all absolute or all relative in the list from {origin}, got both")
    full = [os.path.abspath(path) for path in paths]
    root = os.path.commonpath([os.path.dirname(path) for path in full])
    return Input(os.fsdecode(root), tuple(os.path.relpath(path, root) for path in full))


def escape_note(num_escaped: int, escaped: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """A note that counts keys which differ from the name they were made of, and shows three."""
    if not num_escaped:
        return []
    shown = ", ".join(f"{raw.decode('utf-8', 'backslashreplace')!r} is {key.decode()}" for raw, key in escaped[:3])
    return [f"{plural(num_escaped, 'key')} escaped, since not every reader takes the name as it is: {shown}"]
