"""Rows that best-fit decreasing left short, filled by exchanging pieces with the emptiest rows.

Best-fit decreasing leaves many rows short by less than its shortest piece. Exchanging a piece for one that is longer by just
what the row lacks fills it; what is lacking gathers in the rows that were taken apart, and one of them is saved after another.
"""

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from shardtools.transforms._pack_fit import best_fit_decreasing
from shardtools.transforms._pack_pieces import Ints

IN_POOL = -1
_MAX_EXCHANGES = 4
"""With one row: the first is nearly always exact, and the time has a bound."""
_POOL_PIECES = 256
"""Enough different lengths to find an exact one among, few enough that packing them again costs nothing."""


def row_tokens(rows: Ints, lengths: Ints) -> Ints:
    """How many tokens each row holds."""
    tokens = np.zeros(int(rows.max()) + 1, np.int64)
    np.add.at(tokens, rows, lengths)
    return tokens


def refilled(rows: Ints, lengths: Ints, seq_len: int, is_pool: npt.NDArray[np.bool_]) -> Ints:
    """The row of each piece [n] after rows not in the pool were filled from it; pieces that are then in the pool have IN_POOL."""
    room = seq_len - row_tokens(rows, lengths)
    pool = _Pool(lengths, np.flatnonzero(is_pool[rows]))
    filled = rows.copy()
    short = np.flatnonzero(~is_pool & (room > 0))
    order = np.argsort(rows, kind="stable")
    begins = np.searchsorted(rows[order], short, "left").tolist()
    ends = np.searchsorted(rows[order], short, "right").tolist()
    for row, begin, end in zip(short.tolist(), begins, ends, strict=True):
        pieces = order[begin:end].tolist()
        pool.fill(pieces, int(room[row]))
        filled[pieces] = row
    filled[pool.pieces] = IN_POOL
    return filled


def with_fewer_rows(rows: Ints, lengths: Ints, seq_len: int) -> Ints:
    """The row of each piece [n] after the emptiest rows were taken apart, others filled from them, and the rest packed again."""
    tokens = row_tokens(rows, lengths)
    emptiest = np.argsort(tokens, kind="stable")
    emptiest = emptiest[tokens[emptiest] < seq_len]
    if len(emptiest) < 2:
        return rows
    is_pool = np.zeros(len(tokens), np.bool_)
    few = int(np.searchsorted(np.cumsum(np.bincount(rows)[emptiest]), _POOL_PIECES, "right"))
    is_pool[emptiest[: max(1, few)]] = True
    filled = refilled(rows, lengths, seq_len, is_pool)
    pool = np.flatnonzero(filled == IN_POOL)
    filled[pool] = len(tokens) + best_fit_decreasing(lengths[pool], seq_len)
    filled = np.unique(filled, return_inverse=True)[1]
    return filled if filled.max() <= rows.max() else rows


class _Pool:
    """Pieces by rising length."""

    def __init__(self, lengths: Ints, pieces: Ints) -> None:
        self._all_lengths = lengths
        pieces = pieces[np.argsort(lengths[pieces], kind="stable")]
        self.pieces: list[int] = pieces.tolist()
        self._lengths: list[int] = lengths[pieces].tolist()

    def fill(self, row: list[int], room: int) -> None:
        """Exchange pieces of a row, or add one, each time the one that leaves the least room."""
        row_lengths: list[int] = self._all_lengths[row].tolist()
        for _ in range(_MAX_EXCHANGES):
            gain, given, taken = self._best(row_lengths, room)
            if not gain:
                return
            piece, length = self.pieces.pop(taken), self._lengths.pop(taken)
            if given < len(row):
                place = bisect_right(self._lengths, row_lengths[given])
                self.pieces.insert(place, row[given])
                self._lengths.insert(place, row_lengths[given])
                row[given], row_lengths[given] = piece, length
            else:
                row.append(piece)
                row_lengths.append(length)
            room -= gain

    def _best(self, row_lengths: list[int], room: int) -> tuple[int, int, int]:
        """(tokens gained, which piece of the row goes, which of the pool comes); the piece after the last stands for none."""
        best = (0, 0, 0)
        lengths = self._lengths
        if not room or not lengths:
            return best
        for given, length in enumerate([*row_lengths, 0]):
            taken = bisect_right(lengths, length + room) - 1
            if taken >= 0 and lengths[taken] - length > best[0]:
                best = (lengths[taken] - length, given, taken)
                if best[0] == room:
                    break
        return best
