"""What a user asks for, in words, made into the values that planning needs."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardtools import plugins
from shardtools.build.select_order import selection_of
from shardtools.build.sidecars import parse_kinds, refuse_unfit
from shardtools.build.step_order import StepWords, steps_of
from shardtools.build.token_order import TokenOrder, token_order_of
from shardtools.datasets import names_shards
from shardtools.errors import UsageError
from shardtools.formats import MDS_INDEX_NAME, ShardFormat
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME
from shardtools.places import join
from shardtools.plan import ShardLimit
from shardtools.selection import Selection
from shardtools.sources import Input, Source, first_files
from shardtools.storage import open_storage
from shardtools.transforms import FillingStep, Step
from shardtools.units import parse_bytes

AUTO = "auto"
"""In place of a source's name: whatever the inputs show."""
_SEEDS = 1 << 64
_PEEKED_FILES = 200
_DEFAULT_SOURCE = "files"
_SHARDS = {"wds", "mds"}
_BESIDE_SHARDS = (MDS_INDEX_NAME, MANIFEST_NAME, OFFSETS_NAME, "shardindex.json", ".idx")
"""Ends of the names of files that describe shards and are no data beside them."""


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
    tokens: TokenOrder | None = None
    """None: samples are stored as they are read."""
    sidecars: tuple[str, ...] = ()
    """Of ``sidecars.KINDS``, sorted."""
    steps: tuple[Step, ...] = ()
    selection: Selection = field(default_factory=Selection)

    @property
    def media(self) -> list[Input]:
        """Folders that steps read besides the inputs."""
        return [Input(step.media_root) for step in self.steps if isinstance(step, FillingStep) and step.media_root is not None]


@dataclass(frozen=True)
class OrderWords:
    """What a user typed, by the names of the command line; an option that was not given is None or not among the options."""

    format: str
    source: str = AUTO
    format_options: Mapping[str, str] = field(default_factory=dict)
    """What only the format understands; ``plugins.make`` reads it."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None
    shard_size: str | None = None
    shard_samples: int | None = None
    shuffle: bool = False
    seed: int | None = None
    sidecars: str | None = None
    token_options: Mapping[str, str] = field(default_factory=dict)
    """What only tokenizing and packing of sequences understand."""
    select_options: Mapping[str, str] = field(default_factory=dict)
    embed_options: Mapping[str, str] = field(default_factory=dict)
    image_options: Mapping[str, str] = field(default_factory=dict)


def order_of(inputs: Sequence[Input], words: OrderWords) -> Order:
    """The order that the words give. Raises UsageError for the first of them that does not fit the others."""
    tokens = token_order_of(words.token_options, words.seed)
    shuffle_seed = _shuffle_seed(words, tokens is not None)
    source_name = detect_source(inputs) if words.source == AUTO else words.source
    source: Source = plugins.make("sources", source_name, words.source_options, "--from")
    format_: ShardFormat = plugins.make("formats", words.format, words.format_options, "--to")
    if tokens is not None and words.columns is not None:
        raise UsageError("expected no --columns with --tokenizer, which settles the columns, got it; leave it out")
    media = [*words.embed_options, *words.image_options]
    if tokens is not None and media:
        raise UsageError(f"expected no --{media[0].replace('_', '-')} with --tokenizer, which stores tokens alone, got it; leave it out")
    if words.columns is not None and format_.index_name is None:
        raise UsageError(f"expected no --columns with --to {words.format}, got it; leave it out")
    encodings = {} if words.columns is None else parse_pairs(words.columns, "--columns")
    if "pkl" in encodings.values():
        raise UsageError("expected --columns without pkl, which may run code where it is read, got it; store such files as bytes")
    sidecars = parse_kinds(words.sidecars)
    refuse_unfit(sidecars, format_)
    return Order(
        source=source,
        format=format_,
        limit=limit_of(None if words.shard_size is None else parse_bytes(words.shard_size), words.shard_samples),
        shuffle_seed=shuffle_seed,
        encodings=encodings,
        sidecars=sidecars,
        tokens=tokens,
        steps=steps_of(StepWords(words.select_options, words.embed_options, words.image_options, format_, encodings)),
        selection=selection_of(words.select_options),
    )


def _shuffle_seed(words: OrderWords, has_tokens: bool) -> int | None:
    if words.shuffle != (words.seed is not None) and (words.shuffle or not has_tokens):
        raise UsageError("expected --shuffle and --seed S together, got only one; the seed fixes the order")
    if words.seed is not None and not 0 <= words.seed < _SEEDS:
        raise UsageError(f"expected --seed of 0 to {_SEEDS - 1}, got {words.seed}")
    return words.seed if words.shuffle else None


def detect_source(inputs: Sequence[Input]) -> str:
    """The source whose file suffixes the inputs bear, by a look at the first files of each. Raises UsageError for a mixture."""
    claims = {name: plugins.load("sources", name).file_suffixes for name in plugins.names("sources")}
    found: dict[str, str] = {}
    beside: list[tuple[Input, str]] = []
    for given in inputs:
        for path in map(os.fsdecode, first_files(given, _PEEKED_FILES)):
            name = next((name for name, suffixes in claims.items() if suffixes and path.lower().endswith(suffixes)), _DEFAULT_SOURCE)
            if name == _DEFAULT_SOURCE and path.endswith(_BESIDE_SHARDS):
                beside.append((given, path))
            else:
                found.setdefault(name, join(given.root, path))
    if not found:
        _refuse_only_descriptions(beside)
    if beside and not found.keys() & _SHARDS:
        found = {_DEFAULT_SOURCE: join(beside[0][0].root, beside[0][1])} | found
    if len(found) > 1:
        shown = " and ".join(f"{path} ({name})" for name, path in sorted(found.items()))
        raise UsageError(f"expected inputs of one kind, got {shown}; choose with --from {' or --from '.join(sorted(found))}")
    return next(iter(found), _DEFAULT_SOURCE)


def _refuse_only_descriptions(beside: Sequence[tuple[Input, str]]) -> None:
    """Raises UsageError for a manifest, or an index of shards, without a shard: it is no small file to be packed."""
    for given, path in beside:
        name = os.path.basename(path)
        if name == MANIFEST_NAME or (name == MDS_INDEX_NAME and names_shards(open_storage(given.root).get(path) or b"")):
            place = join(given.root, path)
            raise UsageError(f"expected shards with samples, got {place} and none that it describes; name a folder that holds some")


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
