"""Stops MDS shards that differ by a byte from what MDSWriter makes of the same rows, and values that would not come back equal."""

import hashlib
import io
import json
import math
import random
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from shardtools.errors import DamagedShardError, UsageError
from shardtools.formats import _mds_shard
from shardtools.formats import mds as mds_module
from shardtools.formats.mds import Mds
from shardtools.plan import ShardLimit
from shardtools.sample import Field

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")


def jpeg(seed: int) -> bytes:
    return image(seed, "JPEG")


def image(seed: int, kind: str) -> bytes:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: it makes the images")
    buffer = io.BytesIO()
    pillow.frombytes("RGB", (9, 7), random.Random(seed).randbytes(9 * 7 * 3)).save(buffer, kind)
    return buffer.getvalue()


def integers(dtype: str, count: int) -> list[int]:
    """Both ends of the range, zero, and values in between."""
    limits = np.iinfo(dtype)
    edge = [int(limits.min), int(limits.max), 0, 1]
    numbers = random.Random(dtype)
    return (edge + [numbers.randint(int(limits.min), int(limits.max)) for _ in range(count)])[:count]


def floats(dtype: str, count: int) -> list[float]:
    """Both zeros, infinities, the largest value, and values that must be rounded."""
    edge = [0.0, -0.0, math.inf, -math.inf, float(np.finfo(dtype).max), 0.1, 1 / 3]
    numbers = random.Random(dtype)
    return (edge + [numbers.uniform(-1000, 1000) for _ in range(count)])[:count]


def arrays(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


COUNT = 40
SHAPES = [(1,), (300,), (2, 3), (2, 70000 // 2 // 400, 2), (1, 1, 1, 5)]


def all_columns() -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Every encoding the package writes, with values at the edges of each."""
    numbers = random.Random(5)
    columns: dict[str, list[Any]] = {
        "raw": [numbers.randbytes(numbers.randint(0, 60)) for _ in range(COUNT)],
        "text": ["", "hi", "画像 \u2028 é", "\0"] * (COUNT // 4),
        "whole": integers("int64", COUNT),
        "record": [{"b": 1, "a": [1.5, None, "é\u2028"]}, [], "text", 3, None] * (COUNT // 5),
        "photo": [jpeg(i) for i in range(COUNT)],
        "drawing": [image(i, "PNG") for i in range(COUNT)],
        "free": [arrays(DTYPES[i % len(DTYPES)], SHAPES[i % len(SHAPES)], i) for i in range(COUNT)],
        "typed": [arrays("int32", SHAPES[i % len(SHAPES)], i) for i in range(COUNT)],
        "shaped": [arrays("float32", (2, 3), i) for i in range(COUNT)],
    }
    encodings = {
        "raw": "bytes",
        "text": "str",
        "whole": "int",
        "record": "json",
        "photo": "jpeg",
        "drawing": "png",
        "free": "ndarray",
        "typed": "ndarray:int32",
        "shaped": "ndarray:float32:2,3",
    }
    for dtype in DTYPES:
        columns[f"as_{dtype}"] = floats(dtype, COUNT) if dtype.startswith("float") else integers(dtype, COUNT)
        encodings[f"as_{dtype}"] = dtype
    return columns, encodings


def keys(count: int) -> list[bytes]:
    return [b"folder/%06d" % i for i in range(count)]


def write_reference(streaming: Any, folder: Path, columns: dict[str, list[Any]], encodings: dict[str, str], **options: Any) -> None:
    """The same rows by MDSWriter, the key as a ``str`` column."""
    count = len(next(iter(columns.values())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with streaming.MDSWriter(out=str(folder), columns={**encodings, "key": "str"}, **options) as out:
            for i, key in enumerate(keys(count)):
                out.write({**{name: values[i] for name, values in columns.items()}, "key": key.decode()})


def shard_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(("shard.", "index."))}


@pytest.mark.train
@pytest.mark.parametrize("hashes", [(), ("sha1",), ("xxh64", "sha1")], ids="+".join)
@pytest.mark.parametrize("size_limit", [8192, 65536, 1 << 20, None])
def test_files_equal_those_of_the_reference_writer(streaming, build, rows, tmp_path, size_limit, hashes):
    columns, encodings = all_columns()
    write_reference(streaming, tmp_path / "theirs", columns, encodings, size_limit=size_limit, hashes=sorted(hashes))
    limit = {"shard_bytes": size_limit} if size_limit else {"shard_samples": COUNT + 1}
    source = tmp_path / "src"
    source.mkdir()
    build(source, tmp_path / "ours", Mds(hashes=hashes), source=rows(keys(COUNT), columns, encodings), **limit)
    theirs, ours = shard_files(tmp_path / "theirs"), shard_files(tmp_path / "ours")
    assert (len(theirs) > 5) == (size_limit == 8192)
    assert ours.keys() == theirs.keys()
    for name, data in theirs.items():
        assert ours[name] == data, name


@pytest.mark.train
def test_a_sample_above_the_limit_stands_where_the_reference_puts_it(streaming, build, rows, tmp_path):
    columns = {"raw": [b"a" * 100, b"b" * 5000, b"c" * 100, b"d" * 100, b"e" * 3000]}
    write_reference(streaming, tmp_path / "theirs", columns, {"raw": "bytes"}, size_limit=1000)
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "ours", Mds(), source=rows(keys(5), columns, {"raw": "bytes"}), shard_bytes=1000)
    assert shard_files(tmp_path / "ours") == shard_files(tmp_path / "theirs")


def test_the_worked_example_is_written_byte_for_byte(write_shard, rows):
    config = (
        b'{"column_encodings": ["str", "int"], "column_names": ["s", "x"], "column_sizes": [null, 8], "compression": null, '
        b'"format": "mds", "hashes": ["sha1"], "size_limit": 1048576, "version": 2}'
    )
    assert len(config) == 186
    expected = (
        bytes.fromhex("02000000 ca000000 d8000000 e4000000")
        + config
        + bytes.fromhex("02000000 6869 0700000000000000")
        + bytes.fromhex("00000000 ffffffffffffffff")
    )
    source = rows([b"a", b"b"], {"x": [7, -1], "s": ["hi", ""]}, {"x": "int", "s": "str"})
    shard = write_shard(Mds(hashes=("sha1",), key_column=None), source, 1 << 20)
    assert shard.data == expected
    assert shard.facts.num_bytes == 228
    assert list(shard.facts.offsets) == [202, 216, 228]


@pytest.mark.train
def test_the_reference_reader_decodes_what_was_put_in(read_streaming, build, rows, tmp_path):
    columns, encodings = all_columns()
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "out", Mds(), source=rows(keys(COUNT), columns, encodings), shard_bytes=16384)
    decoded = read_streaming(tmp_path / "out")
    assert [row["key"] for row in decoded] == [key.decode() for key in keys(COUNT)]
    for i, row in enumerate(decoded):
        for name in ("raw", "text", "whole", "record"):
            assert row[name] == columns[name][i], (i, name)
        for name in ("free", "typed", "shaped"):
            assert row[name].shape == columns[name][i].shape and (row[name] == columns[name][i]).all(), (i, name)
        for dtype in DTYPES:
            assert row[f"as_{dtype}"] == np.dtype(dtype).type(columns[f"as_{dtype}"][i]), (i, dtype)
        assert row["photo"].format == "JPEG" and row["drawing"].format == "PNG"
        assert row["photo"].size == (9, 7)


@pytest.mark.train
@pytest.mark.parametrize("compression", ["zstd", "zstd:1", "zstd:9"])
def test_compressed_shards_hold_the_plain_ones(streaming, read_streaming, build, rows, tmp_path, compression):
    columns, encodings = all_columns()
    (tmp_path / "src").mkdir()
    out = tmp_path / "out"
    build(tmp_path / "src", out, Mds(compression, ("sha1",)), source=rows(keys(COUNT), columns, encodings), shard_bytes=16384)
    write_reference(streaming, tmp_path / "theirs", columns, encodings, size_limit=16384, hashes=["sha1"], compression=compression)
    ours = json.loads((out / "index.json").read_text())["shards"]
    theirs = json.loads((tmp_path / "theirs" / "index.json").read_text())["shards"]
    assert len(ours) > 1
    for our, their in zip(ours, theirs, strict=True):
        assert our.keys() == their.keys()
        assert our["raw_data"] == their["raw_data"]
        assert our["compression"] == compression
        packed = (out / our["zip_data"]["basename"]).read_bytes()
        assert our["zip_data"]["bytes"] == len(packed)
        assert our["zip_data"]["hashes"] == {"sha1": hashlib.sha1(packed).hexdigest()}
        plain = zstandard.ZstdDecompressor().decompress(packed)
        assert len(plain) == our["raw_data"]["bytes"]
        assert hashlib.sha1(plain).hexdigest() == our["raw_data"]["hashes"]["sha1"]
        assert our["zip_data"]["basename"] == our["raw_data"]["basename"] + ".zstd"
        assert not (out / our["raw_data"]["basename"]).exists()
    decoded = read_streaming(out)
    assert [row["raw"] for row in decoded] == columns["raw"]


BIG_ENDIAN = np.array([0, 1, 2], ">i4")


@pytest.mark.parametrize(
    ("encoding", "value", "stored"),
    [
        ("int", True, b"\x01" + bytes(7)),
        ("int", -(2**63), bytes(7) + b"\x80"),
        ("uint8", 255, b"\xff"),
        ("uint8", b"7", b"\x07"),
        ("uint64", 2**64 - 1, b"\xff" * 8),
        ("float32", math.nan, b"\x00\x00\xc0\x7f"),
        ("float32", 1, b"\x00\x00\x80\x3f"),
        ("float16", 65504.0, b"\xff\x7b"),
        ("json", b'{"a": 1}', b'{"a": 1}'),
        ("json", {"a": "é"}, b'{"a": "\\u00e9"}'),
        ("json", b"NaN", b"NaN"),
        ("str", "é", b"\xc3\xa9"),
        ("str", b"\xc3\xa9", b"\xc3\xa9"),
        ("bytes", b"\xff\x00", b"\xff\x00"),
        ("jpeg", b"\xff\xd8\xff\xe0rest", b"\xff\xd8\xff\xe0rest"),
        ("png", b"\x89PNG\r\n\x1a\nrest", b"\x89PNG\r\n\x1a\nrest"),
        ("ndarray:int32", np.zeros(300, np.int32), b"\x05\x2c\x01" + bytes(1200)),
        ("ndarray:int8", np.zeros(255, np.int8), b"\x04\xff" + bytes(255)),
        ("ndarray:int8", np.zeros(256, np.int8), b"\x05\x00\x01" + bytes(256)),
        ("ndarray:int8", np.zeros(65536, np.int8), b"\x06\x00\x00\x01\x00" + bytes(65536)),
        ("ndarray", BIG_ENDIAN, bytes.fromhex("21 04 03 00000000 01000000 02000000")),
        ("ndarray:int32:3", BIG_ENDIAN, bytes.fromhex("00000000 01000000 02000000")),
        ("ndarray", np.arange(6, dtype="<u2").reshape(2, 3).T, bytes.fromhex("10 08 0302 0000 0300 0100 0400 0200 0500")),
        ("ndarray:float32", [1, 2.5], bytes.fromhex("04 02 0000803f 00002040")),
    ],
)
def test_sound_values_are_stored_as_these_bytes(write_shard, rows, encoding, value, stored):
    shard = write_shard(Mds(key_column=None), rows([b"k"], {"v": [value]}, {"v": encoding}))
    assert [reject.sentence for reject in shard.rejects] == []
    assert shard.data.endswith(stored)
    config = json.loads(shard.data[12 : shard.facts.offsets[0]])
    length_bytes = 4 if config["column_sizes"] == [None] else 0
    assert len(shard.data) - shard.facts.offsets[0] == len(stored) + length_bytes


REFUSED: list[tuple[str, Any, str]] = [
    ("uint8", 300, "300"),
    ("uint16", -1, "-1"),
    ("int8", 128, "128"),
    ("int", 2**63, "9223372036854775808"),
    ("int", -(2**63) - 1, "-9223372036854775809"),
    ("uint64", -1, "-1"),
    ("uint64", 2**64, "18446744073709551616"),
    ("int", 3.0, "float"),
    ("int32", 3.9, "3.9"),
    ("int", "7", "str"),
    ("int", None, "none"),
    ("int", b"seven", "seven"),
    ("float32", 1e300, "1e+300"),
    ("float16", 65520.0, "65520"),
    ("float64", 2**53 + 1, "9007199254740993"),
    ("float64", 10**400, "10000"),
    ("float64", "1.0", "str"),
    ("str", b"\xff", "UTF-8"),
    ("str", "\ud800", "UTF-8"),
    ("str", 5, "int"),
    ("bytes", "text", "str"),
    ("jpeg", b"\x89PNG\r\n\x1a\nrest", "JPEG"),
    ("jpeg", b"", "JPEG"),
    ("jpeg", "text", "JPEG"),
    ("png", b"\xff\xd8\xff\xe0rest", "PNG"),
    ("json", b"{", "JSON"),
    ("json", b"", "JSON"),
    ("json", b'{"a": "\xff"}', "JSON"),
    ("ndarray", np.array(5), "shape"),
    ("ndarray", np.zeros((2, 0)), "shape"),
    ("ndarray", [], "shape"),
    ("ndarray", np.zeros(2, bool), "bool"),
    ("ndarray", np.zeros(2, complex), "complex"),
    ("ndarray", np.array(["a"]), "U1"),
    ("ndarray", np.zeros((1,) * 64), "dimension"),
    ("ndarray", [[1], [1, 2]], "shape"),
    ("ndarray", b"\x21\x04\x03", "bytes"),
    ("ndarray:uint8", [1, 300], "uint8"),
    ("ndarray:int32", [1.5], "int32"),
    ("ndarray:float16", [1e6], "float16"),
    ("ndarray:int32:2", [1, 2, 3], "(2,)"),
]


@pytest.mark.parametrize(("encoding", "value", "named"), REFUSED, ids=[f"{e}-{i}" for i, (e, _, _) in enumerate(REFUSED)])
def test_a_value_that_would_not_come_back_equal_is_refused(write_shard, rows, encoding, value, named):
    good = {"str": "a", "bytes": b"a", "json": b"1", "jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}.get(encoding)
    if good is None:
        good = [1, 2] if encoding.startswith("ndarray") else 1
    source = rows([b"first", b"middle", b"last"], {"v": [good, value, good]}, {"v": encoding})
    source = replace(source, fields=(Field("v", encoding),))
    shard = write_shard(Mds(), source)
    assert shard.keys == [b"first", b"last"]
    (reject,) = shard.rejects
    assert reject.where == "row 1"
    assert named in reject.sentence and "expected" in reject.sentence and "got" in reject.sentence
    assert "v" in reject.sentence


JSON_NO_READER_TAKES = [
    '{"a": 1}'.encode("utf-16"),
    b'\xef\xbb\xbf{"a": 1}',
    b'{"a": "\xed\xa0\x80"}',
]


@pytest.mark.parametrize("value", JSON_NO_READER_TAKES, ids=["utf-16", "utf-8 mark", "surrogate"])
def test_json_that_the_reference_reader_cannot_decode_is_refused(write_shard, rows, value):
    with pytest.raises(ValueError):  # what the reference reader does with a cell
        json.loads(value.decode())
    shard = write_shard(Mds(), rows([b"k"], {"v": [value]}, {"v": "json"}))
    assert len(shard.rejects) == 1


def test_a_sample_the_offsets_cannot_reach_is_refused_by_name(write_shard, rows, monkeypatch):
    monkeypatch.setattr(mds_module, "MAX_MDS_BYTES", 5000)
    shard = write_shard(Mds(), rows([b"a", b"b", b"c"], {"v": [b"x" * 10, b"x" * 6000, b"y"]}, {"v": "bytes"}))
    assert shard.keys == [b"a", b"c"]
    (reject,) = shard.rejects
    assert reject.reason == "too-large" and reject.where == "row 1" and "6001" in reject.sentence


def test_samples_that_only_together_pass_the_limit_are_all_kept(rows, build, read_mds_raw, tmp_path, monkeypatch):
    """A batch is read by input size, so one batch may hold more than one shard can."""
    monkeypatch.setattr(mds_module, "MAX_MDS_BYTES", 5000)
    values = [bytes([i]) * 3000 for i in range(4)]
    (tmp_path / "src").mkdir()
    source = rows(keys(4), {"v": values}, {"v": "bytes"})
    build(tmp_path / "src", tmp_path / "out", "mds", source=source, shard_samples=1000)
    assert [row["v"] for row in read_mds_raw(tmp_path / "out")] == values
    assert max(path.stat().st_size for path in (tmp_path / "out").glob("*.mds")) <= 5000


@pytest.mark.parametrize("encoding", ["int128", "ndarray:bool", "ndarray:int32:0", "ndarray:int32:a", "ndarray:int32:2:3", ""])
def test_an_encoding_that_cannot_be_written_is_wrong_use(rows, encoding, one_sentence):
    fields = rows([b"k"], {"v": [1]}, {"v": encoding}).fields
    with pytest.raises(UsageError) as caught:
        Mds().encoder(fields, None)
    assert repr(encoding) in one_sentence(caught.value)


@pytest.mark.parametrize("compression", ["gz", "zstd:0", "zstd:23", "zstd:", "zstd:x", "zst", "zstd:²"])
def test_a_compression_that_cannot_be_written_is_wrong_use(compression):
    with pytest.raises(UsageError, match="compression"):
        Mds(compression)


def test_a_field_that_clashes_with_the_key_column_names_the_flag(rows):
    fields = rows([b"k"], {"key": ["a"]}, {"key": "str"}).fields
    with pytest.raises(UsageError, match="--key-column"):
        Mds().encoder(fields, None)
    Mds(key_column="id").encoder(fields, None)


def test_an_absent_value_is_null_in_json_and_empty_elsewhere(write_shard, rows):
    columns = {"a": [None, b"1"], "b": [None, "x"], "c": [None, b"y"]}
    shard = write_shard(Mds(key_column=None), rows([b"k", b"l"], columns, {"a": "json", "b": "str", "c": "bytes"}))
    assert shard.rejects == []
    begin, middle, end = shard.facts.offsets
    assert shard.data[begin:middle] == bytes.fromhex("04000000 00000000 00000000") + b"null"
    assert shard.data[middle:end] == bytes.fromhex("01000000 01000000 01000000") + b"1xy"


def test_a_spool_on_disk_writes_the_same_bytes(write_shard, rows, monkeypatch):
    source = rows(keys(50), {"v": [bytes([i]) * 70000 for i in range(50)]}, {"v": "bytes"})
    in_memory = write_shard(Mds(), source)
    monkeypatch.setattr(_mds_shard, "_SPOOL_BYTES", 100_000)
    assert write_shard(Mds(), source).data == in_memory.data


def test_limits_are_not_part_of_a_shard_with_a_sample_limit(build, rows, tmp_path):
    (tmp_path / "src").mkdir()
    source = rows(keys(5), {"v": [b"x"] * 5}, {"v": "bytes"})
    build(tmp_path / "src", tmp_path / "out", "mds", source=source, shard_samples=2)
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert [shard["samples"] for shard in index["shards"]] == [2, 2, 1]
    assert {shard["size_limit"] for shard in index["shards"]} == {None}
    assert ShardLimit(num_samples=2).num_bytes is None


def test_damage_names_the_byte(write_shard, rows):
    shard = write_shard(Mds(), rows(keys(3), {"v": [b"x" * 10] * 3}, {"v": "bytes"}))
    with pytest.raises(DamagedShardError, match="at byte 0"):
        list(Mds().stored_samples(memoryview(shard.data[:6])))
