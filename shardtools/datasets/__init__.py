"""Datasets opened for reading: those this package published, and folders of WDS or MDS shards made by others."""

from shardtools.datasets._dataset import Dataset, Problem, Shard
from shardtools.datasets._foreign import KEY_COLUMN, tar_shard
from shardtools.datasets._hashes import named_hash, sha256_of
from shardtools.datasets._look import look_at
from shardtools.datasets._mds_index import IndexedFile, IndexEntry, names_shards
from shardtools.datasets._names import TAR_SUFFIXES, is_mds_name, is_pattern, is_shard_name, mds_compression
from shardtools.datasets._numbering import number_gaps
from shardtools.datasets._open import survey_dataset
from shardtools.datasets._unpack import MAX_HELD_BYTES
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
    "look_at",
    "mds_compression",
    "named_hash",
    "names_shards",
    "number_gaps",
    "open_dataset",
    "sha256_of",
    "survey_dataset",
    "tar_shard",
]


def open_dataset(uri: str) -> Dataset:
    """The dataset at ``uri``.

    Raises UsageError where there is none, saying what was looked for, or where what describes it cannot be trusted.
    """
    dataset = survey_dataset(uri)
    for problem in dataset.problems:
        if problem.is_fatal:
            raise UsageError(f"expected a sound dataset in {dataset.uri}, got {problem.name} with this fault: {problem.detail}")
    return dataset
