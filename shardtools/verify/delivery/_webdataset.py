"""Which rank and worker reads which shard of a WDS dataset, by the arithmetic of the webdataset library.

Source: webdataset 1.0.2, ``shardlists.split_by_node`` and ``split_by_worker``: every rank and worker walks the same list and
takes its stride of it, ranks first.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardtools.verify.delivery._grid import Cell


class Reading(NamedTuple):
    """What every reading process of one world gets."""

    num_shards: npt.NDArray[np.int64]
    """[world_size, readers]"""
    num_samples: npt.NDArray[np.int64]
    """[world_size, readers]"""

    @property
    def num_empty(self) -> int:
        """Readers without a sample."""
        return int((self.num_samples == 0).sum())

    @property
    def rank_samples(self) -> npt.NDArray[np.int64]:
        """[world_size]"""
        total: npt.NDArray[np.int64] = self.num_samples.sum(axis=1)
        return total


def readers(num_shards: int, cell: Cell) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rank and the worker of each shard, in the order of the list: [num_shards] each."""
    shards = np.arange(num_shards, dtype=np.int64)
    return shards % cell.world_size, shards // cell.world_size % cell.num_readers


def replay(counts: npt.NDArray[np.int64], cell: Cell) -> Reading:
    """One epoch over shards of so many samples each. Cost: the number of shards."""
    rank, worker = readers(len(counts), cell)
    shape = (cell.world_size, cell.num_readers)
    slot = rank * cell.num_readers + worker
    size = shape[0] * shape[1]
    num_shards = np.bincount(slot, minlength=size).reshape(shape)
    num_samples = np.zeros(size, np.int64)
    np.add.at(num_samples, slot, counts)
    return Reading(num_shards, num_samples.reshape(shape))
