"""The shards that inputs hold, each with what planning knows of it without reading its samples."""

import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from shardtools.datasets import Dataset, Problem, Shard, is_shard_name, named_dataset, refuse_unsound, survey_dataset
from shardtools.errors import UsageError
from shardtools.manifest import OFFSETS_NAME
from shardtools.places import below, join
from shardtools.sources._inputs import Input
from shardtools.storage import Storage, Stored
from shardtools.units import plural

_OFFSET_BYTES = 8
_GZIP_RATIO = 2
"""What a compressed tar is thought to unpack to, in its own bytes, where nothing says how much it is."""
_GZIP_LENGTH_BYTES = 4
_SHOWN_NOTES = 3


@dataclass(frozen=True)
class SourceShard:
    """One shard of an input."""

    root: int
    """Index of the input."""
    shard: Shard
    """``index`` counts over all inputs; ``num_samples`` is None where nothing says how many there are."""
    name: str
    """Of its file, below the input."""
    num_bytes: int
    raw_bytes: int
    """The uncompressed length, as far as it is known."""
    version: str
    """Another text for other bytes: its time of modification, or its ETag."""
    offsets: "array[int] | None" = None
    """Where each sample begins, and the end of the last; None where only the shard itself tells."""

    @property
    def can_be_cut(self) -> bool:
        """A run of its samples can be read without the others."""
        known = self.shard.num_samples is not None and self.shard.compression is None
        return known and (self.offsets is not None or self.shard.format.index_name is not None)

    def bytes_of(self, begin: int, end: int | None) -> int:
        """How much a run of samples takes, exactly where offsets tell, else by the shard's mean."""
        if self.offsets is not None and end is not None:
            return self.offsets[end] - self.offsets[begin]
        if not self.shard.num_samples or end is None:
            return self.raw_bytes
        return self.raw_bytes * (end - begin) // self.shard.num_samples


@dataclass(frozen=True)
class ShardInputs:
    """What inputs hold."""

    datasets: tuple[Dataset, ...]
    """One for each input."""
    shards: tuple[SourceShard, ...]
    notes: tuple[str, ...]
    newest_ns: int


def shard_inputs(inputs: Sequence[Input], format_name: str) -> ShardInputs:
    """The datasets of the inputs. Raises UsageError where one is of another format, or where a shard is missing or not as described."""
    datasets = [_dataset(given, format_name) for given in inputs]
    shards: list[SourceShard] = []
    newest_ns = 0
    for root, dataset in enumerate(datasets):
        prefix = below(inputs[root].root, dataset.uri)
        found, newest = _shards(dataset, root, prefix and prefix + "/", len(shards))
        shards += found
        newest_ns = max(newest_ns, newest)
    if not shards:
        raise UsageError(f"expected shards with samples, got none in {', '.join(given.root for given in inputs)}")
    problems = [problem for dataset in datasets for problem in dataset.problems]
    return ShardInputs(tuple(datasets), tuple(shards), (*_split_notes(datasets), *_notes(problems)), newest_ns)


def _dataset(given: Input, format_name: str) -> Dataset:
    if given.paths is None:
        dataset = survey_dataset(given.root)
    else:
        names = [os.fsdecode(path) for path in given.paths]
        other = next((name for name in names if not is_shard_name(name)), None)
        if other is not None:
            raise UsageError(f"expected shards (.tar, .tar.gz, .tgz, .mds) with --from {format_name}, got {join(given.root, other)}")
        dataset = named_dataset([join(given.root, name) for name in names])
    refuse_unsound(dataset, may_lack_files=False)
    if dataset.format_name != format_name:
        name = dataset.format_name
        raise UsageError(f"expected shards of {format_name.upper()} in {dataset.uri}, got those of {name.upper()}; choose --from {name}")
    return dataset


def _shards(dataset: Dataset, root: int, prefix: str, first: int) -> tuple[list[SourceShard], int]:
    """The shards of a dataset, numbered from ``first`` on, and when the latest was modified."""
    storage, listing = dataset.storage, dataset.listing()
    offsets = _offsets(dataset)
    shards, newest_ns = [], 0
    for i, shard in enumerate(dataset.shards):
        found = storage.entry(shard.name) if listing.is_here else listing.entry(shard.name)
        if found is None:
            raise UsageError(f"expected the shard {join(dataset.uri, shard.name)}, got no file of that name; restore it")
        if shard.num_bytes is not None and found.num_bytes != shard.num_bytes:
            raise UsageError(
                f"expected {join(dataset.uri, shard.name)} to be of {plural(shard.num_bytes, 'byte')}, as its dataset says, "
                f"got {found.num_bytes}; restore it"
            )
        newest_ns = max(newest_ns, found.modified_ns)
        numbered = replace(shard, index=first + i)
        own = None if offsets is None or shard.compression is not None else offsets[i]
        raw_bytes = _raw_bytes(shard, found, storage)
        shards.append(SourceShard(root, numbered, prefix + shard.name, found.num_bytes, raw_bytes, found.version, own))
    return shards, newest_ns


def _raw_bytes(shard: Shard, found: Stored, storage: Storage) -> int:
    if shard.compression is None or (shard.entry is None and shard.compression != "gzip"):
        return found.num_bytes
    if shard.entry is not None:
        return shard.entry.raw.num_bytes
    # RFC 1952: a member ends in its length, modulo 2**32.
    last = bytearray(min(_GZIP_LENGTH_BYTES, found.num_bytes))
    storage.read_into(shard.name, memoryview(last), found.num_bytes - len(last))
    length = int.from_bytes(last, "little")
    return length if length > found.num_bytes else found.num_bytes * _GZIP_RATIO


def _offsets(dataset: Dataset) -> "list[array[int]] | None":
    """Of every shard; None where they are not recorded, or not as the manifest has them: reading from end to end needs none."""
    manifest = dataset.manifest
    recorded = None if manifest is None else next((file for file in manifest.files if file.name == OFFSETS_NAME), None)
    if recorded is None or dataset.format_name != "wds" or dataset.storage.num_bytes(OFFSETS_NAME) != recorded.num_bytes:
        return None
    counts = [shard.num_samples or 0 for shard in dataset.shards]
    data = bytes(dataset.stored_file(OFFSETS_NAME))
    if len(data) != _OFFSET_BYTES * sum(count + 1 for count in counts) or hashlib.sha256(data).hexdigest() != recorded.sha256:
        return None
    places = list(accumulate((count + 1 for count in counts), initial=0))
    every = array("Q", data)
    return [every[a:b] for a, b in pairwise(places)]


def _split_notes(datasets: Sequence[Dataset]) -> Iterator[str]:
    for dataset in datasets:
        splits = [] if dataset.manifest is None else dict(dataset.manifest.recipe.get("selection", {}).get("split", ()))
        if splits:
            yield f"{dataset.uri} has the splits {', '.join(splits)}, which are taken together: name the shards of one to take it alone"


def _notes(problems: Sequence[Problem]) -> Iterator[str]:
    shown = [f"{problem.name}: {problem.detail}" for problem in problems[:_SHOWN_NOTES]]
    yield from shown
    if len(problems) > _SHOWN_NOTES:
        yield f"{plural(len(problems) - _SHOWN_NOTES, 'more fault')} of what describes the shards; shardtools verify names all"
