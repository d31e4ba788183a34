"""Datasets opened for reading: those this package published, and folders of WDS or MDS shards made by others."""

from shardtools.datasets._dataset import Dataset, Problem, Shard
from shardtools.datasets._foreign import KEY_COLUMN, tar_shard
from shardtools.datasets._hashes import named_hash, sha256_of
from shardtools.datasets._look import look_at
from shardtools.datasets._mds_index import IndexedFile, IndexEntry, names_shards
from shardtools.datasets._names import TAR_SUFFIXES, is_mds_name, is_pattern, is_shard_name, mds_compression
from shardtools.datasets._numbering import number_gaps
from shardtools.datasets._open import survey_dataset
from shardtools.datasets._selection import named_dataset
from shardtools.datasets._splits import only_split
from shardtools.datasets._unpack import MAX_HELD_BYTES, let_go, room
from shardtools.errors import UsageError
from shardtools.storage import is_safe_name

__all__ = [
    "KEY_COLUMN",
    "MAX_HELD_BYTES",
    "TAR_SUFFIXES",
    "Dataset",
    "IndexEntry",
    "IndexedFile",
    "Problem",
    "Shard",
    "is_mds_name",
    "is_pattern",
    "is_safe_name",
    "is_shard_name",
    "let_go",
    "look_at",
    "mds_compression",
    "named_dataset",
    "named_hash",
    "names_shards",
    "number_gaps",
    "only_split",
    "open_dataset",
    "refuse_unsound",
    "room",
    "sha256_of",
    "survey_dataset",
    "tar_shard",
]


_MISSING = "missing-file"
_REMEDIES = {_MISSING: "; restore it", "index-damaged": "; restore it, or make it anew with shardtools index {}"}
"""By the kind of fault; the others say themselves what to do."""


def refuse_unsound(dataset: Dataset, *, may_lack_files: bool = True) -> None:
    """Raises UsageError for the first fault with which samples cannot be read, or not those that are meant."""
    for problem in dataset.problems:
        if problem.is_fatal or (problem.kind == _MISSING and not may_lack_files):
            remedy = _REMEDIES.get(problem.kind, "").format(dataset.uri)
            raise UsageError(f"expected a sound dataset in {dataset.uri}, got {problem.name} with this fault: {problem.detail}{remedy}")


def open_dataset(uri: str, split: str | None = None) -> Dataset:
    """The dataset at ``uri``, or one split of it.

    Raises UsageError where there is none, saying what was looked for, or where what describes it cannot be trusted.
    """
    dataset = survey_dataset(uri)
    refuse_unsound(dataset)
    return dataset if split is None else only_split(dataset, split)
