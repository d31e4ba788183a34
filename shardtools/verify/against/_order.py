"""Whether two sides have the samples of each split in one order, where samples come to be looked at in another.

A place is 32 bytes: ``>u8`` that orders first, ``>u4`` the number of the partition or shard, ``>u4`` the row in it, then the digest
of the sample that is there.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from shardtools.digests import DigestTable, Records, together
from shardtools.duplicates import DIGEST_BYTES

_MEMORY_BYTES = 32 << 20
_PLACE = np.dtype([("word", ">u8"), ("holder", ">u4"), ("row", ">u4"), ("content", f"V{DIGEST_BYTES}")])


def spread(index: int, count: int) -> int:
    """A word for what is ordered by its index alone: evenly over all that words can be, so that no stretch of them is crowded."""
    return (index << 64) // count


def place_records(words: npt.NDArray[np.uint64], holder: int, first_row: int, records: bytes) -> npt.NDArray[np.void]:
    """The places of samples that follow each other; ``records`` are their key and content digests."""
    places = np.zeros(len(words), _PLACE)
    places["word"], places["holder"] = words, holder
    places["row"] = np.arange(first_row, first_row + len(words))
    contents: Records = np.frombuffer(records, np.uint8).reshape(-1, 2 * DIGEST_BYTES)[:, DIGEST_BYTES:]
    places["content"] = np.ascontiguousarray(contents).view(f"V{DIGEST_BYTES}").ravel()
    return places


class SampleOrder:
    """One side's places. Memory: that of a DigestTable, however many splits there are."""

    def __init__(self, splits: Sequence[str]) -> None:
        self._tables = {split: DigestTable(_PLACE.itemsize, _MEMORY_BYTES // len(splits)) for split in splits}

    def add(self, split: str, places: bytes) -> None:
        """Places of samples of one split, in any order."""
        self._tables[split].add(places)

    def add_shard(self, split: str, index: int, count: int, records: bytes) -> None:
        """The samples of the ``index``-th of ``count`` shards, in their order."""
        if split in self._tables:
            words = np.full(len(records) // (2 * DIGEST_BYTES), spread(index, count), np.uint64)
            self.add(split, place_records(words, index, 0, records).tobytes())

    def digests(self) -> list[bytes]:
        """One for all samples of each split in their order."""
        return [self._digest(table) for table in self._tables.values()]

    def close(self) -> None:
        """Give the disk space back."""
        for table in self._tables.values():
            table.close()

    def _digest(self, table: DigestTable) -> bytes:
        hasher = xxhash.xxh3_128()
        for (places,) in together([table]):
            hasher.update(np.ascontiguousarray(places[:, DIGEST_BYTES:]).tobytes())
        return hasher.digest()
