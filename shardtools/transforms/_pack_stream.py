"""Concatenation: documents one after the other, cut where a row is full."""

from collections.abc import Iterator

import numpy as np

from shardtools.transforms import PartitionWork
from shardtools.transforms._pack_pieces import NO_PIECES, Pieces, joined, split
from shardtools.transforms._pack_windows import PackedRows

_BLOCK_TOKENS = 1 << 20


def packed_stream(arriving: Iterator[Pieces], seq_len: int, drops_tail: bool, work: PartitionWork) -> Iterator[PackedRows]:
    """The rows of a partition in the order of its documents; only the last can be short."""
    gathered: list[Pieces] = []
    num_tokens = 0
    for part in arriving:
        gathered.append(part)
        num_tokens += int(part.lengths.sum())
        if num_tokens >= max(seq_len, _BLOCK_TOKENS):
            rows, rest = _full_rows(joined(gathered), seq_len, work)
            yield rows
            gathered, num_tokens = [rest], int(rest.lengths.sum())
    rows, rest = _full_rows(joined(gathered), seq_len, work)
    if len(rows.pieces):
        yield rows
    if len(rest):
        work.counts["tail-rows"] += 1
        if drops_tail:
            work.counts["tokens-dropped"] += int(rest.lengths.sum())
        else:
            yield PackedRows(rest, np.array([len(rest)]))


def _full_rows(stream: Pieces, seq_len: int, work: PartitionWork) -> tuple[PackedRows, Pieces]:
    """As many full rows as a stream that begins with a row holds, and what remains of it."""
    if not len(stream):
        return PackedRows(NO_PIECES, np.empty(0, np.int64)), NO_PIECES
    begins = np.cumsum(stream.lengths) - stream.lengths
    pieces, num_cut = split(stream, begins % seq_len, seq_len)
    work.counts["documents-split"] += num_cut
    ends = np.cumsum(pieces.lengths)
    rows = (ends - 1) // seq_len
    num_full = int(ends[-1]) // seq_len
    num_pieces = int(np.searchsorted(rows, num_full))
    sizes = np.bincount(rows[:num_pieces], minlength=num_full).astype(np.int64)
    return PackedRows(pieces.take(slice(0, num_pieces)), sizes), pieces.take(slice(num_pieces, None)).copied()
