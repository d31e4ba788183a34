"""Token digests follow the tokens and nothing else; stops a proof that two layouts hold the same text where they do not, and one
that fails since rows are cut elsewhere.
"""

import random

import numpy as np
import pytest

from shardtools.bench.equality.token_streams import (
    Bag,
    Digester,
    DocumentStreams,
    joined,
    parts_of_row,
    pieces_name,
    runs_of_row,
    stream_name,
    stream_text,
)
from shardtools.bench.readers._documents import RowCutter

pytestmark = pytest.mark.train

PRIME = 2**31 - 1


def documents_of(seed):
    choice = random.Random(seed)
    return [np.array([choice.randrange(50) for _ in range(choice.choice((1, 2, 3, 8, 9, 31)))], np.uint16) for _ in range(40)]


def test_a_run_is_the_polynomial_of_its_tokens():
    digester = Digester()
    tokens = [0, 65535, 7, 0, 2**32 - 1]
    sums = digester.run(np.array(tokens, np.uint32)).sums
    for base, found in zip((1_073_741_827, 715_827_883, 1_500_450_271, 1_190_494_759), sums, strict=True):
        assert found == sum((token + 1) * base ** (4 - i) for i, token in enumerate(tokens)) % PRIME


@pytest.mark.parametrize("length", [0, 1, 2, 3, 64, 65, 1000])
def test_runs_join_wherever_they_were_cut(length):
    tokens = np.arange(length, dtype=np.uint16) * 3 % 101
    digester = Digester()
    for cut in {0, 1, length // 2, length}:
        assert digester.run(tokens[:cut]).then(digester.run(tokens[cut:])) == Digester().run(tokens)


def test_order_padding_and_length_are_told_apart():
    digester = Digester()
    runs = [digester.run(np.array(tokens, np.uint16)) for tokens in ([1, 2], [2, 1], [1, 2, 0], [0, 1, 2], [1], [])]
    assert len({run.digest for run in runs}) == len(runs)


def streams_of(documents, seq_len, cut, order):
    """What the on-the-fly side comes to: documents cut into rows, the rows of two workers seen in any order."""
    streams, digester, rows = DocumentStreams(cut), Digester(), []
    for worker in (0, 1):
        cutter = RowCutter(seq_len, True)
        mine = range(worker, len(documents), 2)
        for i in range(0, len(mine), 5):
            some = mine[i : i + 5]
            rows += cutter.rows([b"0/%d" % n for n in some], [documents[n] for n in some])
        rows += cutter.last()
    random.Random(order).shuffle(rows)
    for row in rows:
        for part in parts_of_row(row["tokens"], row["pieces"], cut, digester):
            streams.add(part)
    return streams


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("seq_len", [2, 7, 32])
def test_documents_come_together_again_however_rows_are_cut(seed, seq_len):
    """Against pieces and streams cut by hand."""
    documents = documents_of(seed)
    digests = streams_of(documents, seq_len, 8, order=seed).digests()
    digester = Digester()
    for policy in ("split", "truncate", "drop"):
        bag, kept = Bag(), []
        for tokens in documents:
            pieces = [tokens[i : i + 8] for i in range(0, len(tokens), 8)]
            pieces = {"split": pieces, "truncate": pieces[:1], "drop": pieces if len(tokens) <= 8 else []}[policy]
            kept += pieces
            for piece in pieces:
                bag.add(digester.run(piece))
        assert digests[pieces_name(8, policy)] == str(bag)
        assert digests[stream_name(8, policy)] == stream_text(digester.run(np.concatenate(kept)))


def test_one_token_or_boundary_elsewhere_is_seen():
    documents = documents_of(3)
    name = pieces_name(8, "split")
    sound = streams_of(documents, 7, 8, order=0).digests()[name]
    changed = [tokens.copy() for tokens in documents]
    changed[5][0] += 1
    assert streams_of(changed, 7, 8, order=0).digests()[name] != sound
    shifted = [*documents[:4], np.append(documents[4], documents[5][0]), documents[5][1:], *documents[6:]]
    assert streams_of([tokens for tokens in shifted if len(tokens)], 7, 8, order=0).digests()[name] != sound


def test_without_rows_documents_are_whole():
    documents = documents_of(4)
    bag, digester = Bag(), Digester()
    for tokens in documents:
        bag.add(digester.run(tokens))
    assert streams_of(documents, None, None, order=1).digests() == {
        "whole documents": str(bag),
        "stream": stream_text(digester.run(np.concatenate(documents))),
    }


def test_packed_rows_leave_padding_out():
    row, lengths, digester = np.array([5, 6, 7, 0, 0], np.uint16), np.array([1, 2], np.int32), Digester()
    assert runs_of_row(row, lengths, digester) == [digester.run(row[:1]), digester.run(row[1:3])]
    assert joined(runs_of_row(row, lengths, digester)) == digester.run(row[:3])


def test_what_came_again_is_counted_and_what_is_missing_is_refused():
    streams = streams_of(documents_of(5), 7, 8, order=2)
    part = parts_of_row(np.array([1, 2], np.uint16), [(b"1/7", 0, 3, 2)], 8, Digester())[0]
    streams.add(part)
    streams.add(part)
    assert streams.num_repeated == 1
    with pytest.raises(ValueError, match="expected documents whole, got 1 in part"):
        streams.digests()


@pytest.mark.parametrize("seed", range(5))
def test_rows_hold_every_token_once_and_say_which(seed):
    documents = documents_of(seed)
    cutter = RowCutter(8, True)
    rows = [*cutter.rows([b"0/%d" % i for i in range(40)], documents), *cutter.last()]
    assert {len(row["tokens"]) for row in rows} == {8}
    stream = np.concatenate(documents)
    assert np.concatenate([row["tokens"] for row in rows])[: len(stream)].tolist() == stream.tolist()
    for row in rows:
        at = 0
        for key, begin, total, length in row["pieces"]:
            document = documents[int(key.split(b"/")[1])]
            assert total == len(document)
            assert row["tokens"][at : at + length].tolist() == document[begin : begin + length].tolist()
            at += length
