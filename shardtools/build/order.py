"""What a user asks for, in words, made into the values that planning needs."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from shardtools import plugins
from shardtools.errors import UsageError
from shardtools.formats import ShardFormat
from shardtools.plan import ShardLimit
from shardtools.sources import Input, Source

_PEEKED_FILES = 200
_DEFAULT_SOURCE = "files"


@dataclass(frozen=True)
class Order:
    """Source, format and limits as asked for; planning settles them into a recipe."""

    source: Source
    format: ShardFormat
    limit: ShardLimit | None = None
    """None: the format's default size."""
    shuffle_seed: int | None = None
    encodings: dict[str, str] = field(default_factory=dict)
    """MDS encodings by field, in place of the inferred ones."""


def detect_source(inputs: Sequence[Input]) -> str:
    """The source whose file suffixes the inputs bear, by a look at the first files. Raises UsageError for a mixture."""
    claims = {name: plugins.load("sources", name).file_suffixes for name in plugins.names("sources")}
    found: dict[str, str] = {}
    for path in islice(_peek(inputs), _PEEKED_FILES):
        name = next((name for name, suffixes in claims.items() if suffixes and path.lower().endswith(suffixes)), _DEFAULT_SOURCE)
        found.setdefault(name, path)
    if len(found) > 1:
        shown = " and ".join(f"{path} ({name})" for name, path in sorted(found.items()))
        raise UsageError(f"expected inputs of one kind, got {shown}; choose with --from {' or --from '.join(sorted(found))}")
    return next(iter(found), _DEFAULT_SOURCE)


def _peek(inputs: Sequence[Input]) -> Iterator[str]:
    for given in inputs:
        if given.paths is not None:
            yield from (os.path.join(given.root, os.fsdecode(path)) for path in given.paths)
            continue
        for folder, subfolders, names in os.walk(given.root):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            yield from (os.path.join(folder, name) for name in names if not name.startswith("."))


def parse_pairs(text: str, flag: str) -> dict[str, str]:
    """``a=b,c=d`` as a dict; a comma inside a value is kept where no name follows it (``x=ndarray:int32:2,3``).

    Raises UsageError for anything else.
    """
    pairs: dict[str, str] = {}
    for part in re.split(r",(?=[^,=]+=)", text):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not (name and separator and value) or name in pairs:
            raise UsageError(f"expected {flag} as NAME=VALUE,NAME=VALUE with every name once, got {text!r}")
        pairs[name] = value
    return pairs


def limit_of(shard_bytes: int | None, shard_samples: int | None) -> ShardLimit | None:
    """The limit that at most one of the two sets. Raises UsageError for both, or for less than one sample."""
    if shard_bytes is not None and shard_samples is not None:
        raise UsageError("expected --shard-size or --shard-samples, got both; choose one")
    if shard_samples is not None and shard_samples < 1:
        raise UsageError(f"expected --shard-samples of 1 or more, got {shard_samples}")
    return None if shard_bytes is None and shard_samples is None else ShardLimit(shard_bytes, shard_samples)
