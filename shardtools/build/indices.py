"""The index files that a format's readers look for: one beside the shards, or one in the folder of each split."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardtools.build.sidecars import SidecarFile
from shardtools.formats import ShardFacts, ShardFormat, index_place
from shardtools.sample import Field


class IndexedShard(NamedTuple):
    """One shard of an index."""

    split: str
    name: str
    """Below the dataset's folder."""
    facts: ShardFacts


def index_files(
    shard_format: ShardFormat, fields: Sequence[Field], shard_bytes: int | None, shards: Sequence[IndexedShard]
) -> Iterator[SidecarFile]:
    """Every index, in the order of the splits; none for a format whose shards stand alone. A split without a shard has none."""
    if shard_format.index_name is None:
        return
    for split in dict.fromkeys(shard.split for shard in shards):
        own = [(shard.name.removeprefix(f"{split}/"), shard.facts) for shard in shards if shard.split == split]
        yield index_place(split), shard_format.index(fields, shard_bytes, own)


def index_names(shard_format: ShardFormat, splits: Sequence[str]) -> set[str]:
    """The names of the files that ``index_files`` makes."""
    return set() if shard_format.index_name is None else set(map(index_place, splits))
