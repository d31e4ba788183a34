"""Stops packed rows that the formats refuse or readers decode to something else, and options that are taken silently."""

import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_cases import Document, batches, documents

from shardtools import plugins
from shardtools.errors import UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sample import Field
from shardtools.transforms import PartitionWork
from shardtools.transforms.packing import DocPiece, Packing

GIVEN = (Field("loss_mask", "ndarray:uint8"), Field("tokens", "ndarray:uint16"))
MASKED = {"doc_ids": True, "has_mask": True}
PACKINGS = {
    "none": Packing("none", **MASKED),
    "concat": Packing("concat", 16, **MASKED),
    "bfd": Packing("bfd", 16, **MASKED),
}


class Rows:
    """What a packing makes of documents, as a source."""

    def __init__(self, packing: Packing, docs: list[Document]) -> None:
        self.fields = packing.fields(GIVEN if packing.has_mask else GIVEN[1:])
        work = PartitionWork(0, self._fail)
        self._batches = list(packing.apply(batches(docs, [3, 4], has_mask=packing.has_mask), work))
        self.keys = [key for batch in self._batches for key in batch.keys]
        self.rows = self  # what the fixture counts rows by

    @staticmethod
    def _fail(reject: object) -> None:
        raise AssertionError(reject)

    def read(self, roots: Any, extents: Any, reject: Any, extras: Any = ()) -> Any:
        return iter(self._batches)

    def values(self, name: str) -> list[Any]:
        return [value for batch in self._batches for value in batch.columns[name]]


def test_fields() -> None:
    assert PACKINGS["bfd"].fields(GIVEN) == (
        Field("doc_ids", "json"),
        Field("loss_mask", "ndarray:uint8:16"),
        Field("seq_lens", "ndarray:int32"),
        Field("tokens", "ndarray:uint16:16"),
    )
    assert Packing("concat", 2048, dtype="int32").fields((Field("tokens", "ndarray:int32"),)) == (
        Field("seq_lens", "ndarray:int32"),
        Field("tokens", "ndarray:int32:2048"),
    )
    assert Packing("none").fields(GIVEN[1:]) == (Field("seq_lens", "ndarray:int32"), Field("tokens", "ndarray:uint16"))
    assert Packing("bfd", 16, **MASKED, npy=True).fields(GIVEN) == (
        Field("doc_ids.json", "json"),
        Field("loss_mask.npy", "bytes"),
        Field("seq_lens.npy", "bytes"),
        Field("tokens.npy", "bytes"),
    )


@pytest.mark.train
@pytest.mark.parametrize("name", PACKINGS)
def test_streaming_reads_the_rows(name: str, write_shard: Callable[..., Any], read_streaming: Any, tmp_path: Path) -> None:
    rows = Rows(PACKINGS[name], documents([5, 40, 3, 16, 1, 30]))
    shard = write_shard(Mds(), rows)
    assert shard.rejects == []
    folder = tmp_path / "mds"
    folder.mkdir()
    (folder / "shard.00000.mds").write_bytes(shard.data)
    (folder / "index.json").write_bytes(Mds().index(rows.fields, None, [("shard.00000.mds", shard.facts)]))
    read = read_streaming(folder)
    assert [sample["key"].encode() for sample in read] == rows.keys
    for column, dtype in (("tokens", np.uint16), ("seq_lens", np.int32), ("loss_mask", np.uint8)):
        for sample, expected in zip(read, rows.values(column), strict=True):
            assert sample[column].dtype == dtype
            assert sample[column].tolist() == expected.tolist()
    assert [sample["doc_ids"] for sample in read] == rows.values("doc_ids")


@pytest.mark.train
@pytest.mark.parametrize("name", PACKINGS)
def test_webdataset_decodes_the_rows(name: str, write_shard: Callable[..., Any], webdataset: Any, tmp_path: Path) -> None:
    docs = documents([5, 40, 3, 16, 1, 30])
    packing = PACKINGS[name]
    as_members = Packing(packing.strategy, packing.seq_len, **MASKED, npy=True)
    plain = Rows(packing, docs)
    shard = write_shard(Wds(), Rows(as_members, docs))
    assert shard.rejects == []
    (tmp_path / "train-000000.tar").write_bytes(shard.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = webdataset.WebDataset([str(tmp_path / "train-000000.tar")], shardshuffle=False, empty_check=False).decode()
        read = list(dataset)
    assert [sample["__key__"].encode() for sample in read] == plain.keys
    for column, dtype in (("tokens", np.uint16), ("seq_lens", np.int32), ("loss_mask", np.uint8)):
        for sample, expected in zip(read, plain.values(column), strict=True):
            assert sample[f"{column}.npy"].dtype == dtype
            assert sample[f"{column}.npy"].tolist() == expected.tolist()
    assert [sample["doc_ids.json"] for sample in read] == plain.values("doc_ids")


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
def test_npy_members_are_files_of_numpy(dtype: str) -> None:
    """numpy itself writes the same bytes today; ours do not change when numpy's do."""
    for length in (1, 9, 10, 99_999, 100_000):
        docs = documents([length])
        packing = Packing("none", dtype=dtype, npy=True)
        (batch,) = packing.apply(batches(docs, has_mask=False), PartitionWork(0, print))
        data = batch.columns["tokens.npy"][0]
        array = np.load(io.BytesIO(data), allow_pickle=False)
        assert array.dtype == np.dtype(dtype)
        assert array.tolist() == docs[0].tokens
        expected = io.BytesIO()
        np.save(expected, np.array(docs[0].tokens, dtype))
        assert data == expected.getvalue()


def test_doc_ids_parse() -> None:
    assert DocPiece.parse("a/b=20c") == ("a/b=20c", 0, None)
    assert DocPiece.parse("a@4096:9000") == ("a", 4096, 9000)
    assert str(DocPiece.parse("a@4096:9000")) == "a@4096:9000"
    for wrong in ("a@", "a@1", "a@1:", "a@:5", "a@-1:5", "a@1:5:6", "a@1@2"):
        with pytest.raises(ValueError, match="expected KEY or KEY@OFFSET:TOTAL"):
            DocPiece.parse(wrong)


def make(**words: str) -> Packing:
    packing = plugins.make("transforms", "packing", words, "--tokenizer")
    assert isinstance(packing, Packing)
    return packing


def test_options_as_words() -> None:
    assert make(packing="bfd", seq_len="2048") == Packing("bfd", 2048)
    assert make(seq_len="2048") == Packing("bfd", 2048)
    assert make() == Packing("none")
    assert make(packing="concat", seq_len="7", long_docs="drop", tail="drop", seed="3", doc_ids="") == Packing(
        "concat", 7, "drop", "drop", 3, True
    )
    assert Packing("bfd", 9).window >= 16_384


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"packing": "ffd", "seq_len": "8"}, "expected --packing none, concat, bfd, got 'ffd'"),
        ({"packing": "bfd"}, "expected --seq-len N with --packing bfd, got none"),
        ({"packing": "concat"}, "expected --seq-len N with --packing concat, got none"),
        ({"seq_len": "1"}, "expected --seq-len as a whole number from 2"),
        ({"seq_len": "2k"}, "expected --seq-len as a whole number from 2, got '2k'"),
        ({"seq_len": "9" * 5000}, "expected --seq-len as a whole number from 2, got '999"),
        ({"seq_len": "8", "long_docs": "cut"}, "expected --long-docs split, truncate, drop, got 'cut'"),
        ({"seq_len": "8", "tail": "keep"}, "expected --tail pad, drop, got 'keep'"),
        ({"seq_len": "8", "seed": "-1"}, "expected --seed as a whole number"),
        ({"seq_len": "8", "seed": str(2**64)}, "expected --seed of 0 to"),
        ({"packing": "none", "tail": "drop"}, "expected no --tail with --packing none"),
        ({"packing": "none", "long_docs": "drop"}, "expected --seq-len N with --long-docs drop"),
        ({"packing": "none", "seq_len": "8"}, "expected --long-docs truncate or drop with --packing none"),
        ({"window": "5"}, "expected no --window with --tokenizer packing"),
    ],
)
def test_words_that_make_no_sense(words: dict[str, str], says: str, one_sentence: Callable[[BaseException], str]) -> None:
    with pytest.raises(UsageError) as raised:
        make(**words)
    assert says in one_sentence(raised.value)


@pytest.mark.parametrize(
    "given",
    [(), (Field("text", "str"),), (Field("tokens", "ndarray:uint32"),), GIVEN, (GIVEN[1], Field("source", "str"))],
)
def test_fields_that_cannot_be_packed(given: tuple[Field, ...], one_sentence: Callable[[BaseException], str]) -> None:
    with pytest.raises(UsageError) as raised:
        Packing("bfd", 8).fields(given)
    assert "expected the fields tokens (ndarray:uint16) to pack" in one_sentence(raised.value)


def test_settled_by_what_comes_in() -> None:
    packing = Packing("bfd", 8).settled((GIVEN[0], Field("tokens", "ndarray:uint32")), npy=True)
    assert packing == Packing("bfd", 8, dtype="uint32", has_mask=True, npy=True)
    with pytest.raises(UsageError, match="expected tokens of uint16, uint32, int32"):
        Packing("bfd", 8).settled((Field("tokens", "json"),), npy=False)


def test_the_recipe_says_everything_and_survives_json() -> None:
    for packing in PACKINGS.values():
        plain = json.loads(json.dumps(packing.recipe()))
        assert plain["name"] == "packing"
        assert plugins.restored("transforms", plain) == packing
