"""Pieces: the runs of a document's tokens that packing moves, described by a row of numbers each, beside the tokens themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.void]
"""[n] of PIECE."""

PIECE = np.dtype(
    [
        ("chunk", "<i8"),  # which chunk holds its tokens
        ("begin", "<i8"),  # where they begin in it
        ("document", "<i8"),  # which of the chunk's keys it belongs to
        ("offset", "<i8"),  # where the piece begins in its document
        ("length", "<i8"),  # tokens in the piece
        ("total", "<i8"),  # tokens the document came with
    ]
)


class DocPiece(NamedTuple):
    """Which part of which document a piece is, as an entry of ``doc_ids`` says it.

    A whole document is its key: ``books/000000004096``. Another piece is ``{key}@{offset}:{total}``: it begins at token
    ``offset`` of the document, which came with ``total`` tokens; its length is the entry of ``seq_lens`` at the same place.
    Keys hold neither ``@`` nor ``:``. A document is complete when its pieces, by offset, cover 0 to ``total`` without gap or
    overlap; what is missing at the end was truncated or dropped.
    """

    key: str
    offset: int
    total: int | None
    """None for a whole document: it is the piece's own length."""

    @classmethod
    def parse(cls, text: str) -> "DocPiece":
        """Raises ValueError for what no packed row holds."""
        key, at, place = text.partition("@")
        offset, colon, total = place.partition(":")
        if not at:
            return cls(key, 0, None)
        if not colon or not (offset.isascii() and offset.isdigit() and total.isascii() and total.isdigit()):
            raise ValueError(f"expected KEY or KEY@OFFSET:TOTAL, got {text!r}")
        return cls(key, int(offset), int(total))

    def __str__(self) -> str:
        return self.key if self.total is None else f"{self.key}@{self.offset}:{self.total}"


class Chunk(NamedTuple):
    """The tokens of some documents in one array, owned by it."""

    keys: Sequence[bytes]
    tokens: npt.NDArray[Any]
    loss_mask: npt.NDArray[np.uint8] | None


@dataclass(frozen=True)
class Pieces:
    """Pieces in order, and the chunks their tokens lie in."""

    chunks: list[Chunk]
    table: Table

    def __len__(self) -> int:
        return len(self.table)

    @property
    def lengths(self) -> Ints:
        return self.table["length"]

    def take(self, order: "Ints | slice") -> "Pieces":
        return Pieces(self.chunks, self.table[order])

    def slices(self, num_pieces: int) -> Iterator["Pieces"]:
        for begin in range(0, len(self), num_pieces):
            yield self.take(slice(begin, begin + num_pieces))

    def document_keys(self) -> list[bytes]:
        """The document of each piece."""
        chunks = self.chunks
        return [
            chunks[chunk].keys[document]
            for chunk, document in zip(self.table["chunk"].tolist(), self.table["document"].tolist(), strict=True)
        ]

    def without_unused_chunks(self) -> "Pieces":
        """The same pieces; chunks that none of them lies in are let go."""
        used, chunk = np.unique(self.table["chunk"], return_inverse=True)
        table = self.table.copy()
        table["chunk"] = chunk
        return Pieces([self.chunks[i] for i in used.tolist()], table)

    def copied(self) -> "Pieces":
        """The same pieces in a chunk that holds nothing else: the chunks they came from are let go."""
        if not len(self):
            return Pieces([], self.table)
        spans = list(zip(self.table["chunk"].tolist(), self.table["begin"].tolist(), self.lengths.tolist(), strict=True))
        tokens = np.concatenate([self.chunks[chunk].tokens[begin : begin + length] for chunk, begin, length in spans])
        masks = [mask[begin : begin + n] for chunk, begin, n in spans if (mask := self.chunks[chunk].loss_mask) is not None]
        table = self.table.copy()
        table["chunk"] = 0
        table["begin"] = np.cumsum(self.lengths) - self.lengths
        table["document"] = np.arange(len(self))
        return Pieces([Chunk(self.document_keys(), tokens, np.concatenate(masks) if masks else None)], table)


NO_PIECES = Pieces([], np.empty(0, PIECE))


def joined(parts: Sequence[Pieces]) -> Pieces:
    """All pieces, in the order of the parts."""
    chunks: list[Chunk] = []
    tables = []
    for part in parts:
        table = part.table.copy()
        table["chunk"] += len(chunks)
        chunks += part.chunks
        tables.append(table)
    return Pieces(chunks, np.concatenate(tables)) if tables else NO_PIECES


def split(pieces: Pieces, phases: Ints, seq_len: int) -> tuple[Pieces, int]:
    """Cut pieces where rows of ``seq_len`` end, each lying at ``phases`` (0 to seq_len - 1) in its row; also how many were cut."""
    lengths = pieces.lengths
    num_parts = -(-(phases + lengths) // seq_len)
    if not (num_parts > 1).any():
        return pieces, 0
    whole = np.repeat(np.arange(len(pieces)), num_parts)
    nth = np.arange(len(whole)) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
    row_begin = nth * seq_len - phases[whole]
    low = np.maximum(row_begin, 0)
    table = pieces.table[whole]
    table["begin"] += low
    table["offset"] += low
    table["length"] = np.minimum(row_begin + seq_len, lengths[whole]) - low
    return Pieces(pieces.chunks, table), int((num_parts > 1).sum())
