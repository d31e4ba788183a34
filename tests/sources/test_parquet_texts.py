"""Stops texts of tables that pass as bytes from being stored though they are no UTF-8, and from looking otherwise than before."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from table_inputs import write_parquet

from shardtools.errors import BadSampleError
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.parquet import Parquet

TEXTS = ["", "plain", "caf\u00e9 \u6771\u4eac \U0001f600", "\0", "\u00e9" * 50]


def bad_texts() -> Any:
    """Three texts, the second of which ends in the middle of a character that the third one ends."""
    data = b"ok\xc3\xa9x"
    offsets = np.array([0, 2, 3, 5], np.int32)
    return pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
    ],
    ids=["string", "large", "view", "dictionary"],
)
def test_texts_of_any_type_are_stored_as_utf8(build, read_mds_raw, tmp_path, column):
    write_parquet(tmp_path / "src" / "t.parquet", {"c": column}, group_rows=3)
    build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet(), shard_samples=2)
    assert [row["c"] for row in read_mds_raw(tmp_path / "out")] == [text.encode() for text in TEXTS]


def test_text_that_is_no_utf8_is_one_bad_sample_though_its_neighbour_completes_it(build, read_mds_raw, tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", {"c": bad_texts(), "d": ["\u00e9"] * 3})
    with pytest.raises(BadSampleError, match=r"t.parquet, row 1: expected UTF-8, got byte 0xc3 at position 0 of a text"):
        build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet())
    build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet(), max_bad="2")
    assert [row["key"] for row in read_mds_raw(tmp_path / "out")] == [b"t/000000000000"]


def test_a_member_that_wants_another_kind_sees_the_text(build, read_tars, tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", {"c": ["7", "8"], "d": ["\u00e9", "y"]})
    build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet(map=parse_mappings("json=c,txt=d")))
    assert [*read_tars(tmp_path / "out").values()] == [b'"7"', "\u00e9".encode(), b'"8"', b"y"]
    with pytest.raises(BadSampleError, match=r"expected a value that readers take from .cls, got str '7'"):
        build(tmp_path / "src", tmp_path / "no", "wds", source=Parquet(map=parse_mappings("cls=c")))


def test_a_reject_still_shows_the_texts_of_its_row(build, tmp_path):
    keys = pa.array(["a", "", "c"])
    write_parquet(tmp_path / "src" / "t.parquet", {"k": keys, "c": ["x", "\u00e9", "z"]})
    build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet(key="k", map=parse_mappings("c=c")), max_bad="1")
    (reject,) = [json.loads(line) for line in (tmp_path / "out" / ".shardtools" / "rejects").read_text().splitlines()]
    assert reject["head"].encode("latin-1").decode() == "{'c': '\u00e9'}"


@pytest.mark.train
def test_the_shard_is_that_of_the_reference_writer(build, streaming, tmp_path):
    table = {"c": TEXTS * 300, "n": list(range(5 * 300))}
    write_parquet(tmp_path / "src" / "t.parquet", table)
    build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet())
    columns = {"c": "str", "key": "str", "n": "int"}
    with streaming.MDSWriter(out=str(tmp_path / "ref"), columns=columns, size_limit=64 << 20) as writer:
        for i, (text, n) in enumerate(zip(table["c"], table["n"], strict=True)):
            writer.write({"c": text, "key": f"t/{i:012d}", "n": n})
    assert shard(tmp_path / "out") == shard(tmp_path / "ref")


def shard(folder: Path) -> bytes:
    data = (folder / "shard.00000.mds").read_bytes()
    assert struct.unpack_from("<I", data) == (1500,)
    return data
