"""Documents to pack, and an account of packed rows that owes nothing to the code under test."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from shardtools.sample import Batch, Reject
from shardtools.transforms import PartitionWork
from shardtools.transforms.packing import Packing


@dataclass
class Document:
    key: str
    tokens: list[int]
    mask: list[int]


def documents(lengths: Sequence[int], seed: int = 1, dtype: str = "uint16") -> list[Document]:
    """Random tokens over the whole dtype, so that padding cannot be told by its id."""
    numbers = random.Random(seed)
    most = int(np.iinfo(dtype).max)
    return [
        Document(f"d/{i:06d}", [numbers.randint(0, most) for _ in range(n)], [numbers.randint(0, 1) for _ in range(n)])
        for i, n in enumerate(lengths)
    ]


def batches(docs: Sequence[Document], cuts: Sequence[int] = (), dtype: str = "uint16", has_mask: bool = True) -> Iterator[Batch]:
    bounds = [0, *sorted(cuts), len(docs)]
    for begin, end in pairwise(bounds):
        some = docs[begin:end]
        columns: dict[str, list[Any]] = {"tokens": [np.array(doc.tokens, dtype) for doc in some]}
        if has_mask:
            columns["loss_mask"] = [np.array(doc.mask, np.uint8) for doc in some]
        yield Batch([doc.key.encode() for doc in some], columns, lambda i, some=some: some[i].key)


@dataclass
class Packed:
    """What came out: rows as plain Python values."""

    keys: list[str] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    masks: list[list[int]] = field(default_factory=list)
    seq_lens: list[list[int]] = field(default_factory=list)
    doc_ids: list[list[str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)


def pack(packing: Packing, given: Iterator[Batch], partition: int = 0) -> Packed:
    packed = Packed()
    work = PartitionWork(partition, packed.rejects.append, packed.counts)
    for batch in packing.apply(given, work):
        assert len(batch) == len(batch.columns["tokens"]) > 0
        packed.keys += [key.decode() for key in batch.keys]
        for row, lengths in zip(batch.columns["tokens"], batch.columns["seq_lens"], strict=True):
            assert row.dtype == np.dtype(packing.dtype)
            assert lengths.dtype == np.int32
            packed.rows.append(row.tolist())
            packed.seq_lens.append(lengths.tolist())
        if packing.has_mask:
            packed.masks += [mask.tolist() for mask in batch.columns["loss_mask"]]
        if packing.doc_ids:
            packed.doc_ids += batch.columns["doc_ids"]
    return packed


@dataclass
class Stored:
    """A piece found in a row."""

    offset: int
    total: int
    tokens: list[int]
    mask: list[int]


def stored_pieces(packed: Packed) -> dict[str, list[Stored]]:
    """The pieces of each document by offset, read from rows, ``seq_lens`` and ``doc_ids`` alone."""
    found: dict[str, list[Stored]] = defaultdict(list)
    for i, (row, lengths, ids) in enumerate(zip(packed.rows, packed.seq_lens, packed.doc_ids, strict=True)):
        assert len(lengths) == len(ids) > 0
        at = 0
        for length, text in zip(lengths, ids, strict=True):
            key, _, place = text.partition("@")
            offset, total = map(int, place.split(":")) if place else (0, length)
            mask = packed.masks[i][at : at + length] if packed.masks else [1] * length
            found[key].append(Stored(offset, total, row[at : at + length], mask))
            at += length
        assert at <= len(row)
        if packed.masks:
            assert not any(packed.masks[i][at:])
    for pieces in found.values():
        pieces.sort(key=lambda piece: piece.offset)
    return found


def slow_best_fit_decreasing(lengths: Sequence[int], seq_len: int) -> list[list[int]]:
    """The rows by the words of the definition: longest first, into the row with the least room that is enough.

    Ties go to the row that was last touched. Looks at every row for every piece.
    """
    rows: list[list[int]] = []
    touched: list[int] = []
    for time, length in enumerate(sorted(lengths, reverse=True)):
        enough = [r for r, row in enumerate(rows) if sum(row) + length <= seq_len]
        if enough:
            chosen = min(enough, key=lambda r: (seq_len - sum(rows[r]), -touched[r]))
            rows[chosen].append(length)
            touched[chosen] = time
        else:
            rows.append([length])
            touched.append(time)
    return rows
