"""The training side: datasets for a torch ``DataLoader`` that never repeat, never lose, and go on where they stopped."""

from shardtools.loaders._dataset import ShardedDataset
from shardtools.loaders._map import MapDataset
from shardtools.loaders._open import open_dataset
from shardtools.loaders._options import LoaderOptions
from shardtools.units import Budget

__all__ = ["Budget", "LoaderOptions", "MapDataset", "ShardedDataset", "open_dataset"]
