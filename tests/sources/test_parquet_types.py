"""Stops values of Parquet columns that change on their way into a column or member, and nulls that become values."""

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from table_inputs import JPEG, PNG, images, plain_table, rich_table, write_parquet

from shardtools.build.order import Order
from shardtools.build.planning import plan_build
from shardtools.build.run import Listener
from shardtools.errors import BadSampleError, UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.parquet import Parquet
from shardtools.sources.wds import Wds as WdsSource

WHEN = "2024-02-29 12:30:00.000007Z"
RECORD = {
    "i8": -128,
    "u16": 0,
    "i64": -(2**63),
    "u64": 0,
    "f16": 0.5,
    "f32": np.float32(0.1).item(),
    "f64": 0.1,
    "ok": True,
    "text": "",
    "large": "x",
    "cat": "u",
    "price": "1.50",
    "day": "2024-02-29",
    "at": WHEN,
    "span": 5,
    "tags": ["a", None],
    "info": {"a": 1, "when": "2024-02-29"},
    "pairs": {"k": 1},
}
ENCODINGS = {
    "i8": "int8",
    "u16": "uint16",
    "i64": "int",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "ok": "uint8",
    "text": "str",
    "large": "str",
    "cat": "str",
    "raw": "bytes",
    "fixed": "bytes",
    "price": "str",
    "day": "str",
    "at": "str",
    "span": "int",
    "tags": "json",
    "info": "json",
    "pairs": "json",
    "vector": "ndarray:float32:2",
    "grid": "ndarray:int16:3,2",
    "key": "str",
}


@pytest.fixture
def pack(build, read_mds_raw, tmp_path):
    """Pack a table to MDS; the rows, the encodings and the notes."""

    def call(table: Any, *, encodings=None, format_=None, max_bad="0", **options):
        write_parquet(tmp_path / "src" / "t.parquet", table)
        notes: list[str] = []
        listener = Listener(on_plan=lambda planned: notes.extend(planned.survey.notes))
        out = tmp_path / "out"
        build(
            tmp_path / "src", out, format_ or Mds(), source=made(options), encodings=encodings, max_bad=max_bad, listener=listener,
            overwrite=True,
        )  # fmt: skip
        entry = json.loads((out / "index.json").read_text())["shards"][0]
        return read_mds_raw(out), dict(zip(entry["column_names"], entry["column_encodings"], strict=True)), notes

    return call


@pytest.fixture
def pack_tar(build, read_tars, tmp_path):
    """Pack a table to WDS; the members of its tars."""

    def call(table: Any, *, max_bad="0", **options):
        write_parquet(tmp_path / "src" / "t.parquet", table)
        build(tmp_path / "src", tmp_path / "out", "wds", source=made(options), max_bad=max_bad, overwrite=True)
        return read_tars(tmp_path / "out")

    return call


def made(options):
    if "map" in options:
        options = {**options, "map": parse_mappings(options["map"])}
    return Parquet(**options)


def rejects(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / ".shardtools" / "rejects").read_text().splitlines()]


# Types.


def test_every_type_has_the_encoding_and_the_bytes_that_it_should(pack):
    rows, encodings, notes = pack(rich_table())
    assert encodings == ENCODINGS
    first, second = rows[0], rows[1]
    assert first["i8"] == b"\x80" and second["u16"] == b"\x01\x00"
    assert first["i64"] == struct.pack("<q", -(2**63)) and rows[2]["u64"] == b"\xff" * 8
    assert first["f16"] == struct.pack("<e", 0.5) and first["f32"] == struct.pack("<f", 0.1)
    assert second["f64"] == struct.pack("<d", float("inf"))
    assert (first["ok"], second["ok"]) == (b"\x01", b"\x00")
    assert second["text"] == "画像".encode() and rows[2]["text"] == "a\u2028b".encode()
    assert (first["cat"], second["cat"], first["large"]) == (b"u", b"v", b"x")
    assert (second["raw"], second["fixed"]) == (b"\x00\xff", b"cd")
    assert (first["price"], second["price"]) == (b"1.50", b"-0.01")
    assert (first["day"], first["at"], first["span"]) == (b"2024-02-29", WHEN.encode(), struct.pack("<q", 5))
    assert [json.loads(first[name]) for name in ("tags", "info", "pairs")] == [RECORD["tags"], RECORD["info"], RECORD["pairs"]]
    assert first["vector"] == np.array([1, 2], "<f4").tobytes()
    assert rows[2]["grid"] == np.array([[1, 2], [3, 4], [5, 6]], "<i2").tobytes()
    assert [row["key"] for row in rows] == [b"t/%012d" % i for i in range(3)]
    assert any("day (date32[day] as text)" in note and "pairs (map as json)" in note for note in notes)


def test_a_tar_has_members_of_bytes_and_arrays_and_one_record_of_all_others(pack_tar):
    members = pack_tar(rich_table())
    assert sorted({name.partition(".")[2] for name in members}) == ["fixed", "grid.npy", "json", "raw", "vector.npy"]
    assert json.loads(members["t/000000000000.json"]) == RECORD
    assert list(json.loads(members["t/000000000000.json"])) == list(RECORD)
    assert members["t/000000000001.raw"] == b"\x00\xff"
    grid = np.load(io.BytesIO(members["t/000000000002.grid.npy"]), allow_pickle=False)
    assert grid.dtype == np.int16 and grid.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_the_layout_says_how_members_become_columns_again(tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", rich_table())
    recipe = plan_build([str(tmp_path / "src")], Order(Parquet(), Wds())).plan.recipe.as_json()
    schema = {column["name"]: (column["encoding"], list(column["members"])) for column in recipe["source"]["layout"]["schema"]}
    assert {name: encoding for name, (encoding, _) in schema.items()} == {name: e for name, e in ENCODINGS.items() if name != "key"}
    assert {name: members for name, (_, members) in schema.items() if members} == {
        "raw": ["raw"],
        "fixed": ["fixed"],
        "vector": ["vector.npy"],
        "grid": ["grid.npy"],
    }


def test_what_is_no_number_is_kept_in_a_record(pack_tar):
    members = pack_tar({"x": [float("nan"), float("-inf"), 1.5], "y": [None, 1, 2]})
    assert members["t/000000000000.json"] == b'{"x":NaN,"y":null}'
    assert members["t/000000000001.json"] == b'{"x":-Infinity,"y":1}'
    assert members["t/000000000002.json"] == b'{"x":1.5,"y":2}'


@pytest.mark.train
def test_streaming_reads_what_pyarrow_reads(build, read_streaming, tmp_path):
    path = write_parquet(tmp_path / "src" / "t.parquet", plain_table(500), group_rows=130)
    build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet())
    expected = [{**row, "ok": int(row["ok"])} for row in parquet.read_table(path).to_pylist()]
    found = read_streaming(tmp_path / "out")
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert [row["key"] for row in found] == [f"t/{i:012d}" for i in range(500)]


@pytest.mark.train
def test_webdataset_reads_what_pyarrow_reads(build, read_webdataset, tmp_path):
    path = write_parquet(tmp_path / "src" / "t.parquet", plain_table(300), group_rows=70)
    build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet())
    found = read_webdataset(tmp_path / "out")
    assert [json.loads(sample["json"]) for sample in found] == parquet.read_table(path).to_pylist()
    assert [sample["__key__"] for sample in found] == [f"t/{i:012d}" for i in range(300)]


# Files inside tables.


def test_images_of_one_kind_are_images(pack, pack_tar):
    table = {"image": images([(JPEG, "a.jpg"), (JPEG + b"2", None)]), "label": [3, 4]}
    rows, encodings, _ = pack(table)
    assert encodings == {"image": "jpeg", "key": "str", "label": "int"}
    assert [row["image"] for row in rows] == [JPEG, JPEG + b"2"]
    members = pack_tar(table)
    assert members == {
        "t/000000000000.image.jpg": JPEG,
        "t/000000000000.json": b'{"label":3}',
        "t/000000000001.image.jpg": JPEG + b"2",
        "t/000000000001.json": b'{"label":4}',
    }


def test_files_of_several_kinds_keep_their_own_in_tars_and_are_bytes_in_mds(pack, pack_tar):
    table = {"image": images([(JPEG, "a.jpeg"), (PNG, "b.jpg"), (b"RIFF", "c.webp"), (b"?", None)])}
    rows, encodings, _ = pack(table)
    assert encodings["image"] == "bytes" and [row["image"] for row in rows] == [JPEG, PNG, b"RIFF", b"?"]
    assert pack_tar(table) == {
        "t/000000000000.image.jpg": JPEG,
        "t/000000000001.image.png": PNG,
        "t/000000000002.image.webp": b"RIFF",
        "t/000000000003.image.bin": b"?",
    }


def test_a_file_of_a_kind_that_no_first_row_has_is_a_bad_sample(build, tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", {"image": images([(JPEG, None)] * 1000 + [(PNG, None), (JPEG, None)])})
    with pytest.raises(
        BadSampleError, match=r"t.parquet, row 1000: expected a file of the kind jpg in 'image', as in the first rows, got png"
    ):
        build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet())
    build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet(), max_bad="1")
    assert [reject["reason"] for reject in rejects(tmp_path / "out")] == ["other-kind"]


def test_a_path_without_bytes_is_a_bad_sample(pack):
    with pytest.raises(BadSampleError, match=r"row 1: expected the bytes of a file, got only its path 'b.jpg'"):
        pack({"image": images([(JPEG, "a.jpg"), (None, "b.jpg")])})


# Nulls.


def test_null_in_the_first_rows_makes_a_column_json_or_bytes_that_may_be_empty(pack):
    table = {
        "n": pa.array([1, None, 3], pa.int32()),
        "text": ["a", None, ""],
        "raw": [b"a", None, b""],
        "image": images([(JPEG, None), None, (None, None)]),
        "vector": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        "nothing": pa.nulls(3),
    }
    rows, encodings, notes = pack(table)
    assert encodings == {
        "n": "json",
        "text": "json",
        "raw": "bytes",
        "image": "bytes",
        "vector": "json",
        "nothing": "json",
        "key": "str",
    }
    assert [row["n"] for row in rows] == [b"1", b"null", b"3"]
    assert [row["text"] for row in rows] == [b'"a"', b"null", b'""']
    assert [row["raw"] for row in rows] == [b"a", b"", b""]
    assert [row["image"] for row in rows] == [JPEG, b"", b""]
    assert [row["vector"] for row in rows] == [b"[1, 2]", b"null", b"[3, 4]"]
    assert [row["nothing"] for row in rows] == [b"null"] * 3
    assert any("since some are null: n, text, vector, nothing" in note for note in notes)


def test_null_in_a_tar_is_null_in_the_record_and_a_missing_member(pack_tar):
    members = pack_tar({"n": [1, None], "raw": [None, b"x"], "image": images([None, (JPEG, None)])})
    assert members == {
        "t/000000000000.json": b'{"n":1}',
        "t/000000000001.image.jpg": JPEG,
        "t/000000000001.json": b'{"n":null}',
        "t/000000000001.raw": b"x",
    }


@pytest.mark.parametrize("column", [pa.array([1] * 1000 + [None]), pa.array(["a"] * 1000 + [None]), pa.array([b"a"] * 1000 + [None])])
def test_a_later_null_is_a_bad_sample(build, tmp_path, column):
    write_parquet(tmp_path / "src" / "t.parquet", {"c": column, "d": [1] * 1001})
    with pytest.raises(BadSampleError, match=r"t.parquet, row 1000: expected .* in the field 'c', got none"):
        build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet())
    result = build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet(), max_bad="1")
    assert (result.manifest.ledger.num_read, result.manifest.ledger.num_written) == (1001, 1000)
    assert rejects(tmp_path / "out")[0]["reason"] == "missing-field"


def test_a_later_null_is_one_in_a_record_and_a_value_of_json_in_mds(build, read_tars, read_mds_raw, tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", {"n": [1] * 1000 + [None]})
    build(tmp_path / "src", tmp_path / "tar", "wds", source=Parquet())
    assert read_tars(tmp_path / "tar")["t/000000001000.json"] == b'{"n":null}'
    with pytest.raises(BadSampleError, match=r"sample t/000000001000: expected the field 'n' .* --columns n=json"):
        build(tmp_path / "tar", tmp_path / "no", "mds", source=WdsSource())
    with pytest.raises(BadSampleError, match=r"sample t/000000001000: expected the field 'm' .* --columns m=json"):
        build(tmp_path / "tar", tmp_path / "no", "mds", source=WdsSource(map=parse_mappings("m=n")))
    build(tmp_path / "src", tmp_path / "mds", "mds", source=Parquet(), encodings={"n": "json"})
    build(tmp_path / "tar", tmp_path / "back", "mds", source=WdsSource(), encodings={"n": "json"})
    assert [row["n"] for row in read_mds_raw(tmp_path / "back")] == [b"1"] * 1000 + [b"null"]
    assert read_mds_raw(tmp_path / "back") == read_mds_raw(tmp_path / "mds")
    build(tmp_path / "tar", tmp_path / "mapped", "mds", source=WdsSource(map=parse_mappings("m=n")), encodings={"m": "json"})
    assert [row["m"] for row in read_mds_raw(tmp_path / "mapped")] == [b"1"] * 1000 + [b"null"]


def test_a_mapping_says_what_may_be_null(pack, pack_tar):
    table = {"text": ["a"] * 1000 + [None], "n": [1] * 1001}
    rows, encodings, _ = pack(table, map="caption=text?")
    assert encodings == {"caption": "str", "key": "str"}
    assert rows[1000]["caption"] == b""
    members = pack_tar(table, map="txt=text?,cls=n")
    assert members["t/000000000000.txt"] == b"a" and members["t/000000000000.cls"] == b"1"
    assert "t/000000000001.txt" in members and "t/000000001000.txt" not in members


def test_what_no_column_can_leave_empty_is_null_in_json(pack):
    table = {"n": [1, None], "emb": pa.array([[1, 2], None], pa.list_(pa.int8(), 2))}
    for name in table:
        with pytest.raises(UsageError, match=rf"with --columns {name}=json the absent ones are null"):
            pack(table, map=f"{name}={name}?")
    rows, _, _ = pack(table, map="n=n?,emb=emb?", encodings={"n": "json", "emb": "json"})
    assert [(row["n"], row["emb"]) for row in rows] == [(b"1", b"[1, 2]"), (b"null", b"null")]


def test_an_array_may_be_null_where_a_mapping_says_so(pack_tar):
    column = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2))
    members = pack_tar({"emb": column, "n": [1, 2, 3]}, map="emb.npy=emb?,cls=n")
    assert [name for name in members if "npy" in name] == ["t/000000000000.emb.npy", "t/000000000002.emb.npy"]
    assert np.load(io.BytesIO(members["t/000000000002.emb.npy"])).tolist() == [3, 4]


# What the user says.


def test_columns_in_place_of_types(pack):
    table = {
        "emb": [[1.0, 2.0], [3.0, 4.0]],
        "day": pa.array([1, 2], pa.date32()),
        "price": pa.array(["1.50", "2.25"]).cast(pa.decimal128(5, 2)),
        "n": pa.array([1, 2], pa.int64()),
        "text": ["a", "b"],
        "image": images([(JPEG, None)] * 2),
    }
    encodings = {"emb": "ndarray:float32:2", "day": "int32", "price": "float64", "n": "int8", "text": "bytes", "image": "bytes"}
    rows, found, _ = pack(table, encodings=encodings)
    assert found == {**encodings, "key": "str"}
    assert rows[1] == {
        "emb": np.array([3, 4], "<f4").tobytes(),
        "day": b"\x02\0\0\0",
        "price": struct.pack("<d", 2.25),
        "n": b"\x02",
        "text": b"b",
        "image": JPEG,
        "key": b"t/000000000001",
    }


def test_a_key_column_names_the_samples(pack, pack_tar):
    table = {"id": ["a/x", "b", "ü.1"], "key": ["p", "q", "r"], "n": [1, 2, 3]}
    rows, _, _ = pack(table, key="id", format_=Mds(key_column="name"), keep_path=True)
    assert [row["name"] for row in rows] == [b"a/x", b"b", b"=C3=BC=2E1"]
    assert [row["path"] for row in rows] == [b"a/x", b"b", "ü.1".encode()]
    rows, encodings, _ = pack(table, key="key")
    assert [row["key"] for row in rows] == [b"p", b"q", b"r"] and sorted(encodings) == ["id", "key", "n"]
    assert "7.json" in pack_tar({"id": pa.array([7, 8], pa.int16()), "n": [1, 2]}, key="id")


def test_a_row_without_a_key_is_a_bad_sample(pack):
    with pytest.raises(BadSampleError, match=r"row 1: expected text or a whole number in the key column 'id', got None"):
        pack({"id": ["a", None]}, key="id")


def test_a_column_of_a_type_that_no_field_can_hold_is_refused_unless_others_are_named(pack):
    table = {"list": pa.array([[b"a"]]), "n": [1]}
    with pytest.raises(UsageError, match=r"got 'list' with binary inside, which no field can hold; name the columns to take with --map"):
        pack(table)
    assert pack(table, map="n=n")[0][0]["n"] == struct.pack("<q", 1)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_struct_that_has_a_name_twice_is_refused(pack, depth):
    """No object can hold both, and pyarrow raises where it makes one."""
    column = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    for _ in range(depth):
        column = pa.StructArray.from_arrays([column], ["inner"])
    with pytest.raises(UsageError, match=r"got 'twice' with struct<x: int64, x: int64> \(a name twice\) inside, which no field can hold"):
        pack({"twice": column, "n": [1]})
    assert pack({"twice": column, "n": [1]}, map="n=n")[0][0]["n"] == struct.pack("<q", 1)


def test_values_that_cannot_be_had_are_bad_samples(build, tmp_path):
    twice = pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    far = pa.array([0, 2**52], pa.timestamp("ms"))
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")]
    )  # fmt: skip
    hole = pa.array([[1, 2], [1, None]], pa.list_(pa.int32(), 2))
    for name, column, sentence in [
        ("twice", twice, "expected every key of a map once, got one twice"),
        ("far", far, "expected a time that can be written as a date"),
        ("text", text, "expected UTF-8, got byte 0xff at position 0"),
        ("hole", hole, "expected arrays of numbers without gaps"),
    ]:
        write_parquet(tmp_path / name / "t.parquet", {"c": column, "d": [1, 2]})
        with pytest.raises(BadSampleError, match=rf"t.parquet, row 1: {sentence}"):
            build(tmp_path / name, tmp_path / f"out-{name}", "wds", source=Parquet())
        result = build(tmp_path / name, tmp_path / f"out-{name}", "wds", source=Parquet(), max_bad="1")
        assert (result.manifest.ledger.num_written, result.manifest.ledger.num_rejected) == (1, 1)


@pytest.mark.parametrize(
    ("column", "encoding", "sentence"),
    [
        (pa.array([1.5, 1e300]), "float32", "expected float32, got 1e[+]300, which is outside its range"),
        (pa.array([1, 300]), "uint8", "expected uint8 .0 to 255., got 300"),
        (pa.array([[[1, 2], [3, 4]]] * 2, pa.list_(pa.list_(pa.int16(), 2), 2)), "ndarray:int16:4", "expected an array of shape"),
    ],
)
def test_values_that_do_not_fit_what_the_user_said_are_bad_samples(pack, column, encoding, sentence):
    with pytest.raises(BadSampleError, match=rf"t.parquet, row [01]: field 'c': {sentence}"):
        pack({"c": column}, encodings={"c": encoding})


@pytest.mark.parametrize(
    ("options", "encodings", "sentence"),
    [
        ({"key": "no"}, None, "expected --key of n, text, got 'no'"),
        ({"map": "a=no"}, None, "expected columns among n, text in --map, got 'no'"),
        ({}, {"no": "str"}, "expected --columns among n, text, got 'no'"),
    ],
)
def test_names_that_no_column_has_are_refused(pack, options, encodings, sentence):
    with pytest.raises(UsageError, match=sentence):
        pack({"n": [1], "text": ["a"]}, encodings=encodings, **options)
