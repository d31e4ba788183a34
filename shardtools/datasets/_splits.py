"""One split of a dataset: as its manifest says, else by the names of its shards."""

from dataclasses import replace

from shardtools.datasets._dataset import Dataset, Shard
from shardtools.errors import UsageError


def only_split(dataset: Dataset, split: str) -> Dataset:
    """The dataset with the shards of one split alone, which keep their place in the whole.

    Where no manifest knows of splits, its shards are those in the folder of that name (``val/shard.00000.mds``), or whose names
    begin with it (``val-000000.tar``). Raises UsageError that names the splits there are.
    """
    shards = tuple(shard for shard in dataset.shards if split_of(dataset, shard) == split)
    if not shards:
        declared = () if dataset.manifest is None else dataset.manifest.splits
        if split in declared:
            raise UsageError(f"expected samples in the split {split} of {dataset.uri}, got none: no sample came into it; name another")
        there = ", ".join(dict.fromkeys(declared or (split_of(dataset, shard) for shard in dataset.shards)))
        other = f"name one of {there}" if there else "it has no splits: leave the split out"
        raise UsageError(f"expected a split of {dataset.uri}, got {split!r}; {other}")
    return replace(dataset, shards=shards, split=split, is_selection=True)


def split_of(dataset: Dataset, shard: Shard) -> str:
    """The split a shard belongs to; empty where neither a manifest nor its name says so."""
    if dataset.manifest is not None and dataset.manifest.splits:
        return shard.split
    folder, _, name = shard.name.rpartition("/")
    return folder.rpartition("/")[2] or name.rpartition("-")[0]
