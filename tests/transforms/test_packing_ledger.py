"""Stops tokens that are lost, doubled or mixed up on the way into rows, and counts that do not add up, under every option pair."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_cases import Document, Packed, batches, documents, pack, stored_pieces

from shardtools.transforms.packing import Packing

OPTIONS = list(product(("concat", "bfd"), ("split", "truncate", "drop"), ("pad", "drop"), (False, True)))


def check(packing: Packing, docs: list[Document], packed: Packed) -> None:
    counts = packed.counts
    assert counts["documents"] == len(docs)
    assert counts["documents-empty"] == sum(not doc.tokens for doc in docs)
    assert counts["tokens-in"] == sum(len(doc.tokens) for doc in docs)
    assert counts["tokens-in"] == counts["tokens-stored"] + counts["tokens-truncated"] + counts["tokens-dropped"]
    assert counts["tokens-stored"] == sum(map(sum, packed.seq_lens))
    assert counts["pieces"] == sum(map(len, packed.seq_lens))
    assert counts["rows"] == len(packed.rows)
    if packing.strategy != "none":
        assert {len(row) for row in packed.rows} <= {packing.seq_len}
        assert counts["rows"] * packing.seq_len == counts["tokens-stored"] + counts["padding"]
    assert len(set(packed.keys)) == len(packed.keys)
    check_documents(packing, docs, packed)


def check_documents(packing: Packing, docs: list[Document], packed: Packed) -> None:
    """Every document is there once, whole, in order; what is missing is what policy and counts say."""
    found = stored_pieces(packed)
    by_key = {doc.key: doc for doc in docs}
    assert found.keys() <= by_key.keys()
    truncated = dropped = 0
    for doc in docs:
        pieces = found.get(doc.key, [])
        assert all(piece.total == len(doc.tokens) for piece in pieces)
        at = 0
        for piece in pieces:
            assert piece.offset == at
            assert piece.tokens == doc.tokens[at : at + len(piece.tokens)]
            if packing.has_mask:
                assert piece.mask == [0, *doc.mask[at + 1 : at + len(piece.tokens)]]
            at += len(piece.tokens)
        is_long = packing.seq_len is not None and len(doc.tokens) > packing.seq_len
        if is_long and packing.long_docs == "drop":
            assert not pieces
        kept = min(len(doc.tokens), packing.seq_len or 0) if is_long and packing.long_docs == "truncate" else len(doc.tokens)
        if any(reject.where == doc.key for reject in packed.rejects):
            kept = 0
            dropped += len(doc.tokens)
        elif kept < len(doc.tokens):
            truncated += len(doc.tokens) - kept
        dropped += kept - at
    assert packed.counts["tokens-truncated"] == truncated
    assert packed.counts["tokens-dropped"] == dropped
    if packing.long_docs == "split" and packing.tail == "pad":
        assert packed.counts["tokens-dropped"] == packed.counts["tokens-truncated"] == 0
    assert packed.counts["documents-split"] == sum(len(pieces) > 1 for pieces in found.values()) or packing.tail == "drop"


@pytest.mark.parametrize(("strategy", "long_docs", "tail", "has_mask"), OPTIONS)
def test_the_ledger_closes(strategy: str, long_docs: str, tail: str, has_mask: bool) -> None:
    numbers = random.Random(11)
    for seq_len in (2, 3, 7, 64, 100):
        docs = documents([numbers.choice((0, 1, 2, seq_len, numbers.randint(0, 3 * seq_len))) for _ in range(120)], seq_len)
        packing = Packing(strategy, seq_len, long_docs, tail, 5, doc_ids=True, has_mask=has_mask, window=16, pad_id=65_535)
        packed = pack(packing, batches(docs, range(10, 120, 10), has_mask=has_mask))
        check(packing, docs, packed)
        assert packed.counts["tail-rows"] <= 1


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=60),
    seq_len=st.integers(2, 30),
    options=st.sampled_from(OPTIONS),
    window=st.integers(1, 40),
    seed=st.integers(0, 2**64 - 1),
)
def test_the_ledger_closes_for_any_lengths(
    lengths: list[int], seq_len: int, options: tuple[str, str, str, bool], window: int, seed: int
) -> None:
    strategy, long_docs, tail, has_mask = options
    docs = documents(lengths, 3)
    packing = Packing(strategy, seq_len, long_docs, tail, seed, True, has_mask=has_mask, window=window, window_bytes=window * seq_len)
    check(packing, docs, pack(packing, batches(docs, range(5, len(docs), 5), has_mask=has_mask)))


@pytest.mark.parametrize(("seq_len", "long_docs"), [(None, "split"), (20, "truncate"), (20, "drop")])
def test_one_document_a_row(seq_len: int | None, long_docs: str) -> None:
    docs = documents([5, 0, 20, 21, 1, 400, 7], 4)
    packing = Packing("none", seq_len, long_docs, doc_ids=True)
    packed = pack(packing, batches(docs, [2], has_mask=False))
    check(packing, docs, packed)
    most = seq_len or 400
    expected = [min(n, most) for n in (5, 20, 21, 1, 400, 7) if long_docs != "drop" or n <= most]
    assert [len(row) for row in packed.rows] == expected
    assert packed.seq_lens == [[n] for n in expected]
    assert packed.keys == [doc.key for doc in docs if doc.tokens and (long_docs != "drop" or len(doc.tokens) <= most)]
    assert packed.counts["padding"] == 0


def test_the_ledger_in_numbers() -> None:
    """Counts written down by hand: lengths 3, 0, 9, 4 in rows of 4."""
    docs = documents([3, 0, 9, 4])
    concat = pack(Packing("concat", 4), batches(docs, has_mask=False)).counts
    assert dict(+concat) == {
        "documents": 4,
        "documents-empty": 1,
        "documents-split": 1,
        "tokens-in": 16,
        "tokens-stored": 16,
        "rows": 4,
        "pieces": 5,
    }
    bfd = pack(Packing("bfd", 4), batches(docs, has_mask=False)).counts
    assert (bfd["rows"], bfd["pieces"], bfd["padding"], bfd["tail-rows"], bfd["documents-split"]) == (4, 5, 0, 0, 1)
    cut = pack(Packing("bfd", 4, "truncate", "drop"), batches(documents([3, 9]), has_mask=False)).counts
    assert (cut["tokens-stored"], cut["tokens-truncated"], cut["tokens-dropped"]) == (4, 5, 3)
    assert (cut["documents-truncated"], cut["tail-rows"], cut["rows"], cut["padding"]) == (1, 1, 1, 0)


def test_a_mask_that_truncation_leaves_all_zero_is_a_bad_sample() -> None:
    docs = [Document("d/a", [1, 2, 3, 4, 5], [1, 0, 0, 1, 1]), Document("d/b", [6, 7, 8, 9], [0, 0, 1, 1])]
    packed = pack(Packing("bfd", 3, "truncate", doc_ids=True, has_mask=True), batches(docs))
    assert [(reject.reason, reject.where) for reject in packed.rejects] == [("all-zero-mask", "d/a")]
    assert packed.doc_ids == [["d/b@0:4"]]
    assert packed.masks == [[0, 0, 1]]
    assert packed.counts["documents-rejected"] == 1
    assert (packed.counts["tokens-dropped"], packed.counts["tokens-truncated"], packed.counts["tokens-stored"]) == (5, 1, 3)


def test_nothing_in_nothing_out() -> None:
    for strategy in ("none", "concat", "bfd"):
        packed = pack(Packing(strategy, None if strategy == "none" else 8), batches(documents([0, 0]), has_mask=False))
        assert packed.rows == []
        assert packed.counts["rows"] == packed.counts["padding"] == packed.counts["tail-rows"] == 0
