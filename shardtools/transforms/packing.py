"""Sequence packing: documents of tokens into rows of one length, with a ledger that closes."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shardtools import plugins
from shardtools.errors import UsageError
from shardtools.sample import Batch, Field
from shardtools.transforms import PartitionWork
from shardtools.transforms._columns import LOSS_MASK, SEQ_LENS, TOKENS
from shardtools.transforms._pack_documents import AdmittedDocuments, DocumentRules, documents
from shardtools.transforms._pack_pieces import DocPiece, Pieces, split
from shardtools.transforms._pack_rows import RowLayout, document_rows, fixed_rows
from shardtools.transforms._pack_stream import packed_stream
from shardtools.transforms._pack_windows import WindowRules, packed_windows
from shardtools.transforms._tokenize_options import whole_number

__all__ = ["DocPiece", "Packing"]

_CHOICES = {"packing": ("none", "concat", "bfd"), "long_docs": ("split", "truncate", "drop"), "tail": ("pad", "drop")}
_DTYPES = ("uint16", "uint32", "int32")


@dataclass(frozen=True)
class Packing:
    """Packs the documents of each partition by themselves.

    In: the column ``tokens`` (1-D integer arrays, BOS and EOS in place) and, with ``has_mask``, ``loss_mask`` (uint8, as long);
    a key is the document's id. Out: ``tokens`` [seq_len], ``seq_lens`` int32 [pieces], with ``doc_ids`` a list of one text per
    piece (see DocPiece), with ``has_mask`` a ``loss_mask`` uint8 [seq_len], 0 at padding and at the first token of each piece.
    Padding lies behind the last piece and is known by position: ``tokens[sum(seq_lens):]``, whatever ids it holds. BOS and EOS
    are not repeated: pieces of a split document have them where the document has them.

    ``PartitionWork.counts``: ``documents``, of them ``documents-empty`` (no tokens; left out), ``-split`` (over rows),
    ``-truncated``, ``-dropped``, ``-rejected``; ``tokens-in = tokens-stored + tokens-truncated + tokens-dropped``;
    ``rows * seq_len = tokens-stored + padding``; ``pieces``; ``tail-rows``, rows at a partition's end that were not full.

    Memory: about two windows (see ``window_bytes``), and the batches that come in.
    """

    strategy: str
    """``none``: each document a row of its own length, under its own key. ``concat``: rows cut from the stream of documents.
    ``bfd``: best-fit decreasing, a document longer than a row cut into pieces, rows in random order."""
    seq_len: int | None = None
    """Tokens in a row, 2 or more. With ``none`` the longest row there may be; None: any length."""
    long_docs: str = "split"
    """Of documents above ``seq_len``: ``split`` loses nothing; ``truncate`` keeps the first tokens; ``drop`` leaves them out."""
    tail: str = "pad"
    """Of a partition's last row that is not full (``bfd``: the emptiest of its last window): ``drop`` leaves it out."""
    seed: int = 0
    """Orders the rows of ``bfd``, with the partition and the window."""
    doc_ids: bool = False
    dtype: str = "uint16"
    has_mask: bool = False
    npy: bool = False
    """For tar: members ``tokens.npy``, ``seq_lens.npy``, ``loss_mask.npy``, ``doc_ids.json``."""
    pad_id: int = 0
    window: int = 16_384
    """Pieces that ``bfd`` packs together. More waste less and take more memory."""
    window_bytes: int = 128 << 20
    """A window also ends before its tokens and masks take more: bounds memory where pieces are long."""

    option_names: ClassVar[tuple[str, ...]] = ("packing", "seq_len", "long_docs", "tail", "seed", "doc_ids")

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Packing":
        """``packing`` defaults to ``bfd`` where ``seq_len`` is given, else to ``none``. What depends on tokens is set by ``settled``."""
        seq_len = whole_number(words, "seq_len", 2)
        strategy = words.get("packing", "none" if seq_len is None else "bfd")
        if strategy == "none" and "tail" in words:
            raise UsageError("expected no --tail with --packing none, which has no rows to fill; leave it out")
        return cls(
            strategy=strategy,
            seq_len=seq_len,
            long_docs=words.get("long_docs", "split"),
            tail=words.get("tail", "pad"),
            seed=whole_number(words, "seed") or 0,
            doc_ids="doc_ids" in words,
        )

    def __post_init__(self) -> None:
        for name, value in (("packing", self.strategy), ("long_docs", self.long_docs), ("tail", self.tail)):
            if value not in _CHOICES[name]:
                raise UsageError(f"expected --{name.replace('_', '-')} {', '.join(_CHOICES[name])}, got {value!r}")
        if self.dtype not in _DTYPES:
            raise UsageError(f"expected tokens of {', '.join(_DTYPES)}, got {self.dtype!r}")
        if not 0 <= self.pad_id <= np.iinfo(self.dtype).max:
            raise UsageError(f"expected a padding id that {self.dtype} can hold, got {self.pad_id}")
        if not 0 <= self.seed < 2**64:
            raise UsageError(f"expected --seed of 0 to 2**64 - 1, got {self.seed}")
        if self.window < 1 or self.window_bytes < 1:
            raise UsageError(f"expected a window of at least one piece and one byte, got {self.window} and {self.window_bytes}")
        self._check_seq_len()

    def _check_seq_len(self) -> None:
        if self.seq_len is not None and not 2 <= self.seq_len < 2**31:
            raise UsageError(f"expected --seq-len of 2 to 2**31 - 1, got {self.seq_len}")
        if self.strategy != "none":
            if self.seq_len is None:
                raise UsageError(f"expected --seq-len N with --packing {self.strategy}, got none")
        elif self.seq_len is None and self.long_docs != "split":
            raise UsageError(f"expected --seq-len N with --long-docs {self.long_docs}, got none; it says what is long")
        elif self.seq_len is not None and self.long_docs == "split":
            raise UsageError(
                "expected --long-docs truncate or drop with --packing none and --seq-len, since a document is one row there; "
                "choose one, or leave --seq-len out"
            )

    def settled(self, given: Sequence[Field], npy: bool) -> "Packing":
        """The same for documents with these fields: dtype and loss mask as they come, stored as ``.npy`` or as arrays."""
        encodings = {field.name: field.encoding for field in given}
        dtype = encodings.get(TOKENS, "").removeprefix("ndarray:")
        return dataclasses.replace(self, dtype=dtype, has_mask=LOSS_MASK in encodings, npy=npy)

    def recipe(self) -> dict[str, Any]:
        return plugins.options(self)

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        expected = {TOKENS: f"ndarray:{self.dtype}"} | ({LOSS_MASK: "ndarray:uint8"} if self.has_mask else {})
        got = {field.name: field.encoding for field in given}
        if got != expected:
            raise UsageError(
                f"expected the fields {_listed(expected)} to pack, got {_listed(got)}; other fields cannot follow a document into rows"
            )
        layout = self._layout()
        shape = "" if self.strategy == "none" else f":{self.seq_len}"
        arrays = [(name, f"{encoding}{shape}") for name, encoding in expected.items()] + [(SEQ_LENS, "ndarray:int32")]
        fields = [Field(layout.array_name(name), "bytes" if self.npy else encoding) for name, encoding in arrays]
        if self.doc_ids:
            fields.append(Field(layout.doc_ids_name, "json"))
        return tuple(sorted(fields, key=lambda field: field.name))

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        layout = self._layout()
        rules = DocumentRules(layout.dtype, self.has_mask, self.seq_len, self.long_docs)
        arriving = documents(batches, rules, work)
        if self.strategy == "none":
            return (document_rows(pieces, where, layout, work) for pieces, where in arriving)
        assert self.seq_len is not None, "checked when it was made"
        if self.strategy == "concat":
            packed = packed_stream((pieces for pieces, _ in arriving), self.seq_len, self.tail == "drop", work)
        else:
            packed = packed_windows(_split(arriving, self.seq_len, work), self._window_rules(self.seq_len), work)
        return fixed_rows(packed, self.seq_len, layout, work)

    def _layout(self) -> RowLayout:
        dtype = np.dtype(self.dtype).newbyteorder("<")
        return RowLayout(dtype, self.pad_id, self.has_mask, self.doc_ids, self.npy)

    def _window_rules(self, seq_len: int) -> WindowRules:
        token_bytes = np.dtype(self.dtype).itemsize + self.has_mask
        return WindowRules(seq_len, self.window, self.window_bytes // token_bytes, self.seed, self.tail == "drop")


def _split(arriving: Iterator[AdmittedDocuments], seq_len: int, work: PartitionWork) -> Iterator[Pieces]:
    for whole, _ in arriving:
        pieces, num_cut = split(whole, np.zeros(len(whole), np.int64), seq_len)
        work.counts["documents-split"] += num_cut
        yield pieces


def _listed(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({encoding})" for name, encoding in sorted(fields.items())) or "none"
