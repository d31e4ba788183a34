"""How ``shardtools.offsets`` is laid out: a u64 for each sample, and one for the end of each shard's data."""

from collections.abc import Iterable
from itertools import accumulate

OFFSET_BYTES = 8


def offset_places(counts: Iterable[int]) -> list[int]:
    """[shards + 1]: the byte where the offsets of each shard of so many samples begin; the last is the length of the file."""
    return list(accumulate((OFFSET_BYTES * (count + 1) for count in counts), initial=0))
