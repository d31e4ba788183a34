"""What of each partition is taken, from a look at all of them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from shardtools.build.reading import Cut
from shardtools.build.stages.look import Looked
from shardtools.digests import DigestTable, together
from shardtools.duplicates import DIGEST_BYTES
from shardtools.selection import Selection
from shardtools.storage import Storage

_POSITION_BYTES = 8
Flags = npt.NDArray[np.bool_]


def cuts_of(storage: Storage, looked: Sequence[Looked], selection: Selection) -> tuple[list[Cut], bool]:
    """A cut for each of the first partitions, up to the one where ``--limit`` is reached, and whether it is.

    Of samples that share a digest the first one stays, by partition and row. Memory: 1 byte a sample, and what a DigestTable takes.
    """
    bounds = np.cumsum([0, *(one.num_samples for one in looked)]).tolist()
    repeats = _repeats(storage, looked, bounds[-1]) if selection.dedup is not None else None
    cuts: list[Cut] = []
    num_left = selection.limit
    for begin, end in pairwise(bounds):
        flags = None if repeats is None else repeats[begin:end]
        num_kept = end - begin - (0 if flags is None else int(flags.sum()))
        dropped = b"" if flags is None or not flags.any() else np.packbits(flags, bitorder="little").tobytes()
        if num_left is not None and num_kept >= num_left:
            cuts.append(Cut(dropped, num_left))
            return cuts, True
        cuts.append(Cut(dropped))
        num_left = None if num_left is None else num_left - num_kept
    return cuts, False


def _repeats(storage: Storage, looked: Sequence[Looked], num_samples: int) -> Flags:
    """[num_samples]: whether a sample shares its digest with an earlier one."""
    flags = np.zeros(num_samples, np.bool_)
    table = DigestTable(DIGEST_BYTES + _POSITION_BYTES)
    try:
        position = 0
        for one in looked:
            if one.num_samples:
                table.add(_records(one.digests(storage), position))
            position += one.num_samples
        for (records,) in together([table]):
            words = np.ascontiguousarray(records).view(">u8").astype(np.uint64)
            words = words[np.lexsort((words[:, 2], words[:, 1], words[:, 0]))]
            is_repeat = (words[1:, :2] == words[:-1, :2]).all(1)
            flags[words[1:, 2][is_repeat].astype(np.int64)] = True
    finally:
        table.close()
    return flags


def _records(digests: bytes, position: int) -> bytes:
    """Each digest with the position of its sample in the dataset, the first one's given."""
    columns = np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES)
    positions = np.arange(position, position + len(columns), dtype=">u8").view(np.uint8).reshape(-1, _POSITION_BYTES)
    return np.hstack([columns, positions]).tobytes()
