"""Stops rows that depend on how batches were cut or on the state of a random stream, and rows whose order no seed decides."""

import hashlib
import random

import numpy as np
import pytest
from packing_cases import Packed, batches, documents, pack

from shardtools.sample import Reject
from shardtools.transforms import PartitionWork
from shardtools.transforms.packing import Packing

LENGTHS = [random.Random(2).choice((1, 3, 10, 17, 40, 90)) for _ in range(400)]
PACKINGS = {
    "none": Packing("none", doc_ids=True),
    "concat": Packing("concat", 32, doc_ids=True),
    "bfd": Packing("bfd", 32, doc_ids=True, seed=9, window=50),
    "bfd, windows cut by bytes": Packing("bfd", 32, doc_ids=True, seed=9, window=50, window_bytes=1000),
    "bfd, a window of one": Packing("bfd", 32, doc_ids=True, window=1),
}


def digest(packed: Packed) -> str:
    return hashlib.sha256(
        repr((packed.keys, packed.rows, packed.seq_lens, packed.doc_ids, sorted(packed.counts.items()))).encode()
    ).hexdigest()


@pytest.mark.parametrize("name", PACKINGS)
def test_rows_do_not_depend_on_batches(name: str) -> None:
    docs = documents(LENGTHS)
    numbers = random.Random(5)
    cuts = [(), range(1, 400), range(7, 400, 7), *(sorted(numbers.sample(range(1, 400), 20)) for _ in range(5))]
    assert len({digest(pack(PACKINGS[name], batches(docs, cut, has_mask=False))) for cut in cuts}) == 1


def test_rows_depend_on_seed_and_partition() -> None:
    docs = documents(LENGTHS)
    found = {}
    for seed in (0, 1, 2**63, 2**64 - 1):
        for partition in (0, 1, 2):
            packed = pack(Packing("bfd", 32, seed=seed), batches(docs, has_mask=False), partition)
            assert packed.keys == [f"{partition:06d}/{row:08d}" for row in range(len(packed.keys))]
            found[seed, partition] = tuple(map(tuple, packed.rows))
    assert len(set(found.values())) == 12
    assert len({tuple(sorted(rows)) for rows in found.values()}) == 1


def test_the_order_is_the_one_that_philox_gives() -> None:
    """Full rows only, so that the order they were packed in is known: that of the documents."""
    docs = documents([4] * 50)
    packed = pack(Packing("bfd", 4, seed=77), batches(docs, has_mask=False), partition=3)
    words = np.random.Philox(key=[77, 3], counter=[0, 0, 0, 0]).random_raw(50)
    assert packed.rows == [docs[i].tokens for i in np.argsort(words, kind="stable")]


def test_each_window_has_an_order_of_its_own() -> None:
    docs = documents([4] * 100)
    packed = pack(Packing("bfd", 4, seed=77, window=50), batches(docs, has_mask=False), partition=3)
    words = np.random.Philox(key=[77, 3], counter=[0, 0, 0, 1]).random_raw(50)
    assert packed.rows[50:] == [docs[50 + i].tokens for i in np.argsort(words, kind="stable")]


def test_rows_of_bfd_are_not_sorted_by_length() -> None:
    docs = documents([n for n in range(1, 60) for _ in range(4)])
    packed = pack(Packing("bfd", 64), batches(docs, has_mask=False))
    longest = [max(lengths) for lengths in packed.seq_lens]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.4


def test_concat_keeps_the_stream() -> None:
    docs = documents([5, 3, 9, 1, 2])
    packed = pack(Packing("concat", 4, doc_ids=True, pad_id=1), batches(docs, [1, 3], has_mask=False))
    stream = [token for doc in docs for token in doc.tokens]
    assert packed.rows == [stream[at : at + 4] for at in range(0, 20, 4)]
    assert packed.seq_lens == [[4], [1, 3], [4], [4], [1, 1, 2]]
    assert packed.doc_ids == [
        ["d/000000@0:5"],
        ["d/000000@4:5", "d/000001"],
        ["d/000002@0:9"],
        ["d/000002@4:9"],
        ["d/000002@8:9", "d/000003", "d/000004"],
    ]


def test_padding_is_behind_and_of_the_id_asked_for() -> None:
    docs = documents([3, 2])
    for strategy in ("concat", "bfd"):
        for pad_id in (0, 65_535):
            packed = pack(Packing(strategy, 8, pad_id=pad_id), batches(docs, has_mask=False))
            assert packed.rows == [docs[0].tokens + docs[1].tokens + [pad_id] * 3]
            assert packed.seq_lens == [[3, 2]]


def test_tokens_that_the_dtype_cannot_hold_are_never_wrapped() -> None:
    docs = documents([4])
    docs[0].tokens[2] = 65_536
    with pytest.raises(ValueError, match=r"expected tokens that uint16 can hold, got uint32 .* to 65536"):
        pack(Packing("bfd", 8), batches(docs, dtype="uint32", has_mask=False))


def test_tokens_of_another_dtype_are_cast_when_they_fit() -> None:
    docs = documents([4])
    assert pack(Packing("bfd", 4, dtype="uint16"), batches(docs, dtype="int32", has_mask=False)).rows == [docs[0].tokens]


def test_a_mask_of_another_length_is_refused() -> None:
    docs = documents([4])
    docs[0].mask.pop()
    with pytest.raises(ValueError, match="d/000000: expected a loss mask of 4 entries, one for each token, got 3"):
        pack(Packing("bfd", 8, has_mask=True), batches(docs))


def test_input_arrays_are_not_kept_or_changed() -> None:
    docs = documents([10, 20, 6])
    given = list(batches(docs))
    first = next(Packing("bfd", 8, has_mask=True).apply(iter(given), PartitionWork(0, list[Reject]().append)))
    first.columns["tokens"][0][:] = 0
    first.columns["loss_mask"][0][:] = 9
    assert [array.tolist() for array in given[0].columns["tokens"]] == [doc.tokens for doc in docs]
    assert [array.tolist() for array in given[0].columns["loss_mask"]] == [doc.mask for doc in docs]
