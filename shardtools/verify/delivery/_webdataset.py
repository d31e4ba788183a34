"""Which rank and worker reads which shard of a WDS dataset, by the arithmetic of the webdataset library.

Source: webdataset 1.0.2, ``shardlists.split_by_node`` and ``split_by_worker``: every rank and worker walks the same list and
takes its stride of it, ranks first.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardtools.verify.delivery._grid import Cell


class Tally(NamedTuple):
    """What the readers of one world get."""

    num_empty: int
    """Readers without a sample."""
    least: int
    """Samples of the rank that has fewest."""
    most: int


def tally(counts: npt.NDArray[np.int64], cell: Cell) -> Tally:
    """One epoch over shards of so many samples each, one at least. Cost: the shards, however many readers there are."""
    num_ranks, num_readers = cell.world_size, cell.world_size * cell.num_readers
    by_rank = _shares(counts, num_ranks)
    # Every stride of ranks gives each of them one shard, and every stride of all readers each of those one.
    num_busy = int(np.count_nonzero(_shares(counts, num_readers)))
    return Tally(num_readers - num_busy, int(by_rank.min()) if len(by_rank) == num_ranks else 0, int(by_rank.max()))


def _shares(counts: npt.NDArray[np.int64], num_shares: int) -> npt.NDArray[np.int64]:
    """The samples of all that have a shard, where every ``num_shares``-th shard goes to the same."""
    if num_shares >= len(counts):
        return counts
    padded = np.zeros(-(-len(counts) // num_shares) * num_shares, np.int64)
    padded[: len(counts)] = counts
    shares: npt.NDArray[np.int64] = padded.reshape(-1, num_shares).sum(axis=0)
    return shares
