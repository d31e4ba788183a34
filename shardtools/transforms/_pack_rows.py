"""Packed rows as a batch of samples: whole pieces copied side by side, padding behind them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shardtools.npy import npy_bytes
from shardtools.sample import Batch
from shardtools.transforms import PartitionWork
from shardtools.transforms._columns import DOC_IDS, LOSS_MASK, SEQ_LENS, TOKENS
from shardtools.transforms._pack_pieces import DocPiece, Ints, Pieces
from shardtools.transforms._pack_windows import PackedRows

_BATCH_TOKENS = 1 << 20


@dataclass(frozen=True)
class RowLayout:
    """Which columns a row has, and how their values are stored."""

    dtype: np.dtype[Any]
    pad_id: int
    has_mask: bool
    doc_ids: bool
    npy: bool
    """Values are ``.npy`` bytes, and columns are named as tar members."""

    def array_name(self, name: str) -> str:
        return f"{name}.npy" if self.npy else name

    @property
    def doc_ids_name(self) -> str:
        return f"{DOC_IDS}.json" if self.npy else DOC_IDS

    def stored(self, array: npt.NDArray[Any]) -> Any:
        return npy_bytes(array) if self.npy else array


def fixed_rows(packed: Iterator[PackedRows], seq_len: int, layout: RowLayout, work: PartitionWork) -> Iterator[Batch]:
    """Rows of ``seq_len`` tokens, keyed ``{partition:06d}/{row:08d}``."""
    rows_at_once = max(1, _BATCH_TOKENS // seq_len)
    num_rows = 0
    for pieces, row_sizes in packed:
        ends = np.concatenate(([0], np.cumsum(row_sizes)))
        for begin in range(0, len(row_sizes), rows_at_once):
            sizes = row_sizes[begin : begin + rows_at_once]
            some = pieces.take(slice(int(ends[begin]), int(ends[begin + len(sizes)])))
            keys = [b"%06d/%08d" % (work.index, num_rows + i) for i in range(len(sizes))]
            num_rows += len(sizes)
            columns = _columns(some, sizes, np.full(len(sizes), seq_len), layout)
            work.counts["padding"] += len(sizes) * seq_len - _count(some, sizes, work)
            yield Batch(keys, columns, _row_name(keys))
            del columns, some
        # The window's tokens go before the next window gathers its own.
        del pieces


def _row_name(keys: Sequence[bytes]) -> Callable[[int], str]:
    return lambda i: f"packed row {keys[i].decode()}"


def document_rows(pieces: Pieces, where: Callable[[int], str], layout: RowLayout, work: PartitionWork) -> Batch:
    """One row for each document, as long as it is, under its own key."""
    sizes = np.ones(len(pieces), np.int64)
    _count(pieces, sizes, work)
    return Batch(pieces.document_keys(), _columns(pieces, sizes, pieces.lengths, layout), where)


def _count(pieces: Pieces, row_sizes: Ints, work: PartitionWork) -> int:
    """Count what is stored; returns the number of tokens."""
    num_tokens = int(pieces.lengths.sum())
    work.counts["rows"] += len(row_sizes)
    work.counts["pieces"] += len(pieces)
    work.counts["tokens-stored"] += num_tokens
    return num_tokens


def _columns(pieces: Pieces, row_sizes: Ints, widths: Ints, layout: RowLayout) -> dict[str, list[Any]]:
    """``widths`` is how many tokens each row has room for."""
    row_begins, places = _places(pieces.lengths, row_sizes, widths)
    bounds = np.concatenate(([0], np.cumsum(row_sizes))).tolist()
    token_bounds = [*row_begins.tolist(), int(widths.sum())]
    tokens = np.full(token_bounds[-1], layout.pad_id, layout.dtype)
    _copy(pieces, [chunk.tokens for chunk in pieces.chunks], places, tokens)
    seq_lens = pieces.lengths.astype("<i4")
    columns: dict[str, list[Any]] = {
        layout.array_name(TOKENS): [layout.stored(tokens[begin:end]) for begin, end in pairwise(token_bounds)],
        layout.array_name(SEQ_LENS): [layout.stored(seq_lens[begin:end]) for begin, end in pairwise(bounds)],
    }
    if layout.has_mask:
        mask = np.zeros(len(tokens), np.uint8)
        _copy(pieces, [chunk.loss_mask for chunk in pieces.chunks], places, mask)
        # Nothing in its row predicts the first token of a piece.
        mask[places] = 0
        columns[layout.array_name(LOSS_MASK)] = [layout.stored(mask[begin:end]) for begin, end in pairwise(token_bounds)]
    if layout.doc_ids:
        texts = _doc_ids(pieces)
        columns[layout.doc_ids_name] = [texts[begin:end] for begin, end in pairwise(bounds)]
    return columns


def _places(lengths: Ints, row_sizes: Ints, widths: Ints) -> tuple[Ints, Ints]:
    """Where each row, and each piece, begins when rows lie one behind the other."""
    row_begins = np.cumsum(widths) - widths
    before = np.cumsum(lengths) - lengths
    first_pieces = np.cumsum(row_sizes) - row_sizes
    return row_begins, before + np.repeat(row_begins - before[first_pieces], row_sizes)


def _copy(pieces: Pieces, sources: Sequence[npt.NDArray[Any] | None], places: Ints, into: npt.NDArray[Any]) -> None:
    table = pieces.table
    spans = zip(table["chunk"].tolist(), table["begin"].tolist(), table["length"].tolist(), places.tolist(), strict=True)
    for chunk, begin, length, place in spans:
        into[place : place + length] = sources[chunk][begin : begin + length]


def _doc_ids(pieces: Pieces) -> list[str]:
    table = pieces.table
    texts = [key.decode() for key in pieces.document_keys()]
    for i in np.flatnonzero(table["length"] != table["total"]).tolist():
        texts[i] = str(DocPiece(texts[i], int(table["offset"][i]), int(table["total"][i])))
    return texts
