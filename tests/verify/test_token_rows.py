"""Stops rows of tokens that look sound and are not what packing made: forged so that digests, counts and offsets all agree."""

import io
import json
import random
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import build
from shardtools.formats.wds import Wds
from shardtools.sample import Field
from shardtools.sources import resolve_inputs
from shardtools.verify import VerifyOptions, verify
from shardtools.verify._token_rows import TokenRules, TokenTally

SEQ_LEN = 32


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("tokenizer")
    one = Tokenizer(models.BPE())
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False)
    one.train_from_iterator(["some words to learn from"] * 10, trainer)
    one.save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.fixture
def packed(tmp_path, tokenizer):
    """Documents of a few letters to some hundred, in one MDS shard of rows of 32 tokens."""

    def pack(format_name: str = "mds", **words: str):
        rng = random.Random(3)
        texts = ["".join(rng.choices("abcdefgh ", k=rng.randint(1, 150))) for _ in range(80)]
        with open(tmp_path / "docs.jsonl", "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        options = {"tokenizer": tokenizer, "seq_len": str(SEQ_LEN), "backend": "hf", "doc_ids": "", **words}
        inputs = resolve_inputs([str(tmp_path / "docs.jsonl")])
        build(inputs, str(tmp_path / "out"), order_of(inputs, OrderWords(format_name, token_options=options)))
        return tmp_path / "out"

    return pack


def kinds(folder):
    return {finding.kind for finding in verify(str(folder), VerifyOptions(workers=1)).findings}


@pytest.mark.parametrize("format_name", ["mds", "wds"])
@pytest.mark.parametrize("packing", ["bfd", "concat"])
def test_sound_rows(packed, format_name, packing):
    verdict = verify(str(packed(format_name, packing=packing)), VerifyOptions(workers=1))
    assert verdict.findings == ()
    assert "counted again" in verdict.closing()


def columns_of(parts):
    """Where tokens, seq_lens and doc_ids lie in a row: doc_ids, key, seq_lens vary and are preceded by their lengths."""
    names = parts.config["column_names"]
    assert names == ["doc_ids", "key", "seq_lens", "tokens"]
    return names


def taken_apart(row):
    lengths = struct.unpack_from("<3I", row)
    ends = [12]
    for length in lengths:
        ends.append(ends[-1] + length)
    return [row[a:b] for a, b in zip(ends, [*ends[1:], len(row)], strict=True)]


def joined(values):
    return struct.pack("<3I", *(len(value) for value in values[:3])) + b"".join(values)


@pytest.fixture
def damage(packed, forge, mds_parts):
    """Change the values of the first row that has several pieces, under digests that agree."""

    def call(change):
        folder = packed()
        name = "shard.00000.mds"
        parts = mds_parts((folder / name).read_bytes())
        columns_of(parts)
        for i, row in enumerate(parts.rows):
            values = taken_apart(row)
            ids = json.loads(values[0])
            if len(ids) > 2:
                parts.rows[i] = joined(change(values, ids))
                break
        else:
            raise AssertionError("expected a row of several pieces")
        assert len(parts.rows[i]) == len(row), "only values of the same length leave offsets as they are"
        forge(folder, name, parts.data())
        index = json.loads((folder / "index.json").read_text())
        forge(folder, "index.json", json.dumps(index, sort_keys=True).encode())
        return kinds(folder)

    return call


def test_an_id_above_the_vocabulary(damage):
    assert damage(lambda values, _: [*values[:3], b"\xff\xff" + values[3][2:]]) == {"broken-row"}


def test_pieces_longer_than_the_row(damage):
    def change(values, _):
        head, lengths = values[2][:-4], values[2][-4:]
        return [values[0], values[1], head + struct.pack("<i", struct.unpack("<i", lengths)[0] + SEQ_LEN), values[3]]

    assert damage(change) == {"broken-row"}


def test_a_piece_of_no_length(damage):
    assert damage(lambda values, _: [values[0], values[1], values[2][:-4] + bytes(4), values[3]]) == {"broken-row"}


def test_a_border_between_two_pieces_that_moved(damage):
    """The row holds as many tokens as before; only what is known of the documents tells."""

    def change(values, _):
        first, second = struct.unpack_from("<2i", values[2], len(values[2]) - 4 * 2)
        moved = struct.pack("<2i", first + 1, second - 1) if second > 1 else struct.pack("<2i", first - 1, second + 1)
        return [values[0], values[1], values[2][:-8] + moved, values[3]]

    assert damage(change) == {"broken-document"}


def test_a_piece_that_is_said_to_be_of_another_document(damage):
    def change(values, ids):
        ours, other = (text.partition("@")[0].encode() for text in ids[:2])
        assert len(ours) == len(other) and ours != other
        return [values[0].replace(other, ours), *values[1:]]

    assert damage(change) == {"broken-document"}


def test_counts_that_the_rows_do_not_come_to(packed, edit_manifest):
    folder = packed()

    def change(content):
        counts = content["ledger"]["transforms"]["packing"]
        counts["tokens-stored"] -= 1
        counts["padding"] += 1

    edit_manifest(folder, change)
    assert kinds(folder) == {"token-ledger"}


def test_tokens_that_vanish_between_the_transforms(packed, edit_manifest):
    folder = packed()

    def change(content):
        content["ledger"]["transforms"]["tokenize"]["tokens-in"] += 5

    edit_manifest(folder, change)
    assert kinds(folder) == {"token-ledger"}


def npy(values, dtype):
    file = io.BytesIO()
    np.save(file, np.array(values, dtype))
    return memoryview(file.getvalue())


SOUND = {
    "tokens.npy": npy([5, 6, 7, 0], "uint16"),
    "seq_lens.npy": npy([3], "int32"),
    "loss_mask.npy": npy([0, 0, 1, 0], "uint8"),
    "doc_ids.json": memoryview(b'["a"]'),
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"loss_mask.npy": None}, "every column"),
        ({"doc_ids.json": None}, "every column"),
        ({"doc_ids.json": memoryview(b"[")}, "every column"),
        ({"doc_ids.json": memoryview(b'"a"')}, "a document id for each of 1 pieces"),
        ({"seq_lens.npy": npy([3], "int64")}, "seq_lens of int32"),
        ({"seq_lens.npy": npy([[3]], "int32")}, "one-dimensional seq_lens"),
        ({"loss_mask.npy": npy([0, 0, -1, 0], "int8")}, "in uint8"),
        ({"loss_mask.npy": npy([0, 0, 0, 0], "uint8")}, "a mask of zeros"),
        ({"loss_mask.npy": npy([0, 0, 1, 1], "uint8")}, "0 at padding"),
        ({"tokens.npy": npy([5, 6, 7, 10], "uint16")}, "ids from 0 to 9"),
    ],
)
def test_a_row_in_tar_members(change, says):
    rules = TokenRules(seq_len=4, dtype="uint16", max_id=9, has_mask=True, has_doc_ids=True, loses=False)
    tally = TokenTally(rules, SimpleNamespace(field=lambda _, name: Field(name, "json")), SimpleNamespace(format=Wds()))
    problem = tally.add({name: value for name, value in {**SOUND, **change}.items() if value is not None})
    if says is None:
        assert problem is None
        assert dict(tally.counts) == {"rows": 1, "pieces": 1, "tokens-stored": 3, "padding": 1}
    else:
        assert problem is not None and says in problem
