"""What is read in place of a bad sample, so that all ranks stay in step."""

from collections.abc import Iterator

import numpy as np

from shardtools.loaders._order import Positions

_NUM_NEAR, _NUM_FAR = 16, 1000
"""Of its shard, which is mapped, and of all."""
MOST_TRIES = _NUM_NEAR + _NUM_FAR


def others(counts: Positions, shard: int, row: int) -> Iterator[tuple[int, int]]:
    """Places that are drawn, not next in line: of a run of bad samples each is to get a substitute of its own."""
    words = np.random.Philox(key=np.array([shard, row], np.uint64)).random_raw(_NUM_NEAR + _NUM_FAR)
    yield from ((shard, int(at)) for at in words[:_NUM_NEAR] % np.uint64(counts[shard]))
    ends = np.cumsum(counts)
    for position in (words[_NUM_NEAR:] % np.uint64(ends[-1])).astype(np.int64):
        other = int(np.searchsorted(ends, position, side="right"))
        yield other, int(position - ends[other] + counts[other])
