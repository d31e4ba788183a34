"""Datasets opened for reading: those this package published, and folders of WDS or MDS shards made by others."""

from shardtools.datasets._dataset import Dataset, Problem, Shard
from shardtools.datasets._mds_index import IndexedFile, IndexEntry
from shardtools.datasets._open import survey_dataset
from shardtools.datasets._unpack import MAX_HELD_BYTES
from shardtools.errors import UsageError
from shardtools.storage import is_safe_name

__all__ = ["MAX_HELD_BYTES", "Dataset", "IndexEntry", "IndexedFile", "Problem", "Shard", "is_safe_name", "open_dataset", "survey_dataset"]


def open_dataset(uri: str) -> Dataset:
    """The dataset at ``uri``.

    Raises UsageError where there is none, saying what was looked for, or where what describes it cannot be trusted.
    """
    dataset = survey_dataset(uri)
    for problem in dataset.problems:
        if problem.is_fatal:
            raise UsageError(f"expected a sound dataset in {dataset.uri}, got {problem.name} with this fault: {problem.detail}")
    return dataset
