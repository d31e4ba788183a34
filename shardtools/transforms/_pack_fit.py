"""Best-fit decreasing: the longest piece first, each into the row with the least room that takes it.

Source: arXiv 2404.10830 (Fewer Truncations Improve Language Modeling), section 3: O(n log seq_len) by a search tree over rooms.
"""

from collections.abc import Iterable

import numpy as np

from shardtools.transforms._pack_pieces import Ints

_WORD_BITS = 6
_IN_WORD = (1 << _WORD_BITS) - 1


class RoomSet:
    """A set of rooms from 0 to ``largest`` that finds the least one of a size or more; every call is O(log largest).

    Levels of bit words: a bit of one level says that a word of the level below is not 0.
    """

    def __init__(self, largest: int) -> None:
        self._levels: list[list[int]] = []
        size = largest + 1
        while size > 1 or not self._levels:
            size = -(-size // (_IN_WORD + 1))
            # One word more, since the search may ask for the neighbour of the last.
            self._levels.append([0] * (size + 1))

    def add(self, room: int) -> None:
        for level in self._levels:
            place = room >> _WORD_BITS
            before = level[place]
            level[place] = before | 1 << (room & _IN_WORD)
            if before:
                return
            room = place

    def discard(self, room: int) -> None:
        for level in self._levels:
            place = room >> _WORD_BITS
            level[place] &= ~(1 << (room & _IN_WORD))
            if level[place]:
                return
            room = place

    def least_from(self, size: int) -> int | None:
        """The least room that is ``size`` or more."""
        for height, level in enumerate(self._levels):
            above = level[size >> _WORD_BITS] >> (size & _IN_WORD)
            if above:
                found = size + (above & -above).bit_length() - 1
                for lower in reversed(self._levels[:height]):
                    word = lower[found]
                    found = (found << _WORD_BITS) + (word & -word).bit_length() - 1
                return found
            size = (size >> _WORD_BITS) + 1
        return None


def best_fit_decreasing(lengths: Ints, seq_len: int) -> Ints:
    """The row of each piece [n], rows numbered as they were opened.

    Pieces of one length go in the order given. Of rows with the same room the one that came to it last is taken.
    """
    full = np.flatnonzero(lengths == seq_len)
    rest = np.flatnonzero(lengths < seq_len)
    rows = np.empty(len(lengths), np.int64)
    rows[full] = np.arange(len(full))
    order = rest[np.argsort(-lengths[rest], kind="stable")]
    rising, counts = np.unique(lengths[rest], return_counts=True)
    groups = zip(rising[::-1].tolist(), counts[::-1].tolist(), strict=True)
    rows[order] = _fit(groups, seq_len, len(full))
    return rows


def _fit(groups: Iterable[tuple[int, int]], seq_len: int, num_rows: int) -> list[int]:
    """The row of each piece, for (length, how many pieces) with falling lengths; the first new row is ``num_rows``."""
    rooms = RoomSet(seq_len)
    with_room: dict[int, list[int]] = {}
    chosen: list[int] = []
    for length, waiting in groups:
        while waiting:
            room = rooms.least_from(length)
            if room is None:
                row, room = num_rows, seq_len
                num_rows += 1
            else:
                stack = with_room[room]
                row = stack.pop()
                if not stack:
                    rooms.discard(room)
            # While it has the room, the row that took one piece is the best fit for the next of the same length.
            count = min(waiting, room // length)
            waiting -= count
            chosen += [row] * count
            room -= length * count
            if room:
                stack = with_room.setdefault(room, [])
                if not stack:
                    rooms.add(room)
                stack.append(row)
    return chosen
