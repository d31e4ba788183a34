"""Samples, keys or bytes that change on the way from shards to shards, and columns that do not come back."""

import io
import json
import math
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardtools.build import run
from shardtools.build.order import OrderWords, order_of
from shardtools.errors import UsageError
from shardtools.manifest import Manifest
from shardtools.sources import resolve_inputs
from shardtools.sources._grouping import parse_field_rules
from shardtools.sources._record_layout import FieldMapping
from shardtools.sources.jsonl import Jsonl
from shardtools.sources.mds import Mds
from shardtools.sources.parquet import Parquet
from shardtools.sources.wds import Wds
from shardtools.verify import VerifyOptions, verify

JPEG = b"\xff\xd8\xff\xe0 an image"
Build = Callable[..., Any]


def pairs(count: int) -> dict[str, bytes]:
    """Samples of three files, keys in two folders."""
    found = {}
    for i in range(count):
        stem = f"{'ab'[i % 2]}/{i:04d}"
        found |= {f"{stem}.jpg": JPEG + bytes([i % 256]) * i, f"{stem}.cls": b"%d" % (i % 7)}
        found[f"{stem}.json"] = b'{"i": %d, "word": "\xc3\xa9", "in": {"x": [%d, 1.5]}}' % (i, i)
    return found


def same_shards(one: Path, other: Path, pattern: str) -> None:
    ours, theirs = sorted(one.glob(pattern)), sorted(other.glob(pattern))
    assert ours and [path.name for path in ours] == [path.name for path in theirs]
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]


def test_there_and_back_again_every_byte_of_a_tar_is_the_same(tree: Any, build: Build, tmp_path: Path) -> None:
    build(tree(pairs(90)), tmp_path / "tars", "wds", shard_samples=20)
    build(tree(pairs(90)), tmp_path / "packed", "mds", shard_samples=25)
    build(tmp_path / "tars", tmp_path / "rows", "mds", source=Wds(), shard_samples=25)
    same_shards(tmp_path / "rows", tmp_path / "packed", "*.mds")
    build(tmp_path / "rows", tmp_path / "back", "wds", source=Mds(), shard_samples=20)
    same_shards(tmp_path / "back", tmp_path / "tars", "*.tar")


@pytest.mark.parametrize(("format_", "source", "pattern"), [("wds", Wds(), "*.tar"), ("mds", Mds(), "*.mds")])
def test_other_shards_of_the_same_format_hold_the_same_samples(
    tree: Any, build: Build, tmp_path: Path, format_: str, source: Any, pattern: str
) -> None:
    build(tree(pairs(90)), tmp_path / "many", format_, shard_samples=7)
    build(tree(pairs(90)), tmp_path / "few", format_, shard_samples=40)
    build(tmp_path / "many", tmp_path / "again", format_, source=source, shard_samples=40)
    same_shards(tmp_path / "again", tmp_path / "few", pattern)


def test_rows_from_records_come_back_from_tars_with_their_types(build: Build, tmp_path: Path) -> None:
    lines = [
        {"id": i, "score": i / 3, "ok": i % 2 == 0, "text": f"é {i}", "tags": [{"a": None}, "\u2028"], "json": {"n": 2**70}}
        for i in range(40)
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    build(tmp_path / "r.jsonl", tmp_path / "rows", "mds", source=Jsonl(key="text"), shard_samples=16)
    build(tmp_path / "rows", tmp_path / "tars", "wds", source=Mds(), shard_samples=9)
    with tarfile.open(tmp_path / "tars" / "train-000000.tar") as archive:
        first = archive.getmembers()[0]
        member = archive.extractfile(first)
        assert member is not None
        assert json.loads(member.read()) == lines[0] | {"ok": 1}
    build(tmp_path / "tars", tmp_path / "back", "mds", source=Wds(), shard_samples=16)
    same_shards(tmp_path / "back", tmp_path / "rows", "*.mds")
    fields = [Manifest.parse((tmp_path / name / "shardtools.manifest").read_bytes()).recipe["fields"] for name in ("rows", "back")]
    assert fields[0] == fields[1]


VALUES: dict[str, list[Any]] = {
    "bytes": [b"", b"\0\xff"],
    "str": ["", "è"],
    "int": [-(2**63), 2**63 - 1],
    "uint8": [0, 255],
    "int16": [-5, 7],
    "uint64": [0, 2**64 - 1],
    "float32": [0.1, -1.5],
    "float64": [math.pi, 1e-320],
    "json": [{"a": [1, None, 1.5, "x"]}, "text"],
    "jpeg": [JPEG, JPEG + b"2"],
    "png": [b"\x89PNG\r\n\x1a\n1", b"\x89PNG\r\n\x1a\n2"],
    "ndarray": [np.arange(6, dtype=np.int16).reshape(2, 3), np.ones(300, np.float32)],
    "ndarray:uint32": [np.arange(3, dtype=np.uint32), np.zeros((1, 2, 2), np.uint32)],
    "ndarray:float16:2,2": [np.eye(2, dtype=np.float16), np.zeros((2, 2), np.float16)],
    "str_int": [5, 10**30],
}


@pytest.fixture
def written(streaming: Any, tmp_path: Path) -> Callable[..., Path]:
    """A dataset that MDSWriter wrote, of columns given with their values."""

    def write(columns: dict[str, str], rows: list[dict[str, Any]], name: str = "theirs") -> Path:
        with streaming.MDSWriter(out=str(tmp_path / name), columns=columns, size_limit=700) as sink:
            for row in rows:
                sink.write(row)
        return tmp_path / name

    return write


def every_encoding() -> tuple[dict[str, str], list[dict[str, Any]]]:
    columns = {f"c{n}": encoding for n, encoding in enumerate(VALUES)} | {"key": "str"}
    rows = [{f"c{n}": values[i % 2] for n, values in enumerate(VALUES.values())} | {"key": f"k{i}"} for i in range(9)]
    return columns, rows


@pytest.mark.train
def test_columns_of_every_encoding_pass_as_they_are(build: Build, written: Any, read_mds_raw: Any, tmp_path: Path) -> None:
    columns, rows = every_encoding()
    source = written(columns, rows)
    build(source, tmp_path / "ours", "mds", source=Mds(), shard_bytes=700)
    assert read_mds_raw(tmp_path / "ours") == read_mds_raw(source)
    same_shards(tmp_path / "ours", source, "*.mds")


@pytest.mark.train
def test_columns_of_every_encoding_come_back_from_tars(
    build: Build, written: Any, read_mds_raw: Any, read_webdataset: Any, tmp_path: Path
) -> None:
    columns, rows = every_encoding()
    source = written(columns, rows)
    build(source, tmp_path / "tars", "wds", source=Mds())
    for row, sample in zip(rows, read_webdataset(tmp_path / "tars"), strict=True):
        assert sample["__key__"] == row["key"]
        for name, encoding in columns.items():
            if encoding.startswith("ndarray"):
                array = np.load(io.BytesIO(sample[f"{name}.npy"]))
                assert array.dtype == row[name].dtype and np.array_equal(array, row[name])
        inside = json.loads(sample["json"])
        assert inside["c6"] == np.float32(row["c6"]) and inside["c8"] == row["c8"] and inside["c2"] == row["c2"]
        assert sample["c9.jpg"] == row["c9"] and sample["c0"] == row["c0"]
    build(tmp_path / "tars", tmp_path / "back", "mds", source=Wds())
    assert read_mds_raw(tmp_path / "back") == read_mds_raw(source)


@pytest.mark.train
def test_numbers_that_json_has_not_come_back(build: Build, written: Any, read_mds_raw: Any, tmp_path: Path) -> None:
    rows = [{"x": value, "j": {"v": value}, "key": f"k{i}"} for i, value in enumerate([math.nan, math.inf, 1.0])]
    source = written({"x": "float64", "j": "json", "key": "str"}, rows)
    build(source, tmp_path / "tars", "wds", source=Mds())
    build(tmp_path / "tars", tmp_path / "back", "mds", source=Wds())
    assert read_mds_raw(tmp_path / "back") == read_mds_raw(source)


@pytest.mark.train
def test_rows_without_keys_are_named_by_shard_and_row(build: Build, written: Any, read_webdataset: Any, tmp_path: Path) -> None:
    source = written({"x": "bytes"}, [{"x": b"%d" % i * 40} for i in range(30)])
    build(source, tmp_path / "tars", "wds", source=Mds())
    samples = read_webdataset(tmp_path / "tars")
    shards = [entry["samples"] for entry in json.loads((source / "index.json").read_text())["shards"]]
    assert len(shards) > 2
    assert [sample["__key__"] for sample in samples] == [f"{i:05d}/{j:08d}" for i, count in enumerate(shards) for j in range(count)]
    assert [sample["x"] for sample in samples] == [b"%d" % i * 40 for i in range(30)]


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.train
def test_pickles_are_refused_or_pass_unopened(build: Build, written: Any, read_mds_raw: Any, tmp_path: Path, one_sentence: Any) -> None:
    mark = tmp_path / "ran"
    source = written({"p": "pkl", "key": "str"}, [{"p": Trap(mark), "key": f"k{i}"} for i in range(3)])
    for format_ in ("mds", "wds"):
        with pytest.raises(UsageError) as caught:
            build(source, tmp_path / f"no-{format_}", format_, source=Mds())
        assert "--allow-pickle" in one_sentence(caught.value) and "'p'" in str(caught.value)
    build(source, tmp_path / "rows", "mds", source=Mds(allow_pickle=True))
    assert read_mds_raw(tmp_path / "rows") == read_mds_raw(source)
    build(source, tmp_path / "tars", "wds", source=Mds(allow_pickle=True))
    with tarfile.open(tmp_path / "tars" / "train-000000.tar") as archive:
        assert archive.getnames() == ["k0.p.pkl", "k1.p.pkl", "k2.p.pkl"]
    assert not mark.exists()
    with pytest.raises(UsageError, match="pickles"):
        build(tmp_path / "rows", tmp_path / "again", "mds", source=Mds())
    pickle.loads(read_mds_raw(source)[0]["p"])
    assert mark.exists(), "the trap works"


@pytest.mark.train
def test_the_readers_of_both_worlds_see_the_samples_of_the_files(
    tree: Any, build: Build, read_streaming: Any, read_webdataset: Any, tmp_path: Path
) -> None:
    files = pairs(30)
    build(tree(files), tmp_path / "tars", "wds", shard_samples=8)
    build(tmp_path / "tars", tmp_path / "rows", "mds", source=Wds(), shard_samples=11, encodings={"jpg": "bytes"})
    build(tmp_path / "rows", tmp_path / "back", "wds", source=Mds(), shard_samples=13)
    stems = sorted({name.partition(".")[0] for name in files})
    for stem, row, sample in zip(stems, read_streaming(tmp_path / "rows"), read_webdataset(tmp_path / "back"), strict=True):
        assert row["key"] == sample["__key__"] == stem
        assert row["json"] == json.loads(files[f"{stem}.json"]) and row["cls"] == int(files[f"{stem}.cls"])
        assert row["jpg"] == sample["jpg"] == files[f"{stem}.jpg"]


@pytest.mark.train
def test_tars_of_webdatasets_own_writer_are_read_as_it_wrote_them(
    webdataset: Any, build: Build, read_mds_raw: Any, read_webdataset: Any, tmp_path: Path
) -> None:
    """It puts an extension header before every member, and its keys are as the user wants them."""
    (tmp_path / "src").mkdir()
    with webdataset.ShardWriter(f"{tmp_path}/src/s-%03d.tar", maxcount=7, verbose=0) as sink:
        for i in range(40):
            sink.write({"__key__": f"a b/{i:03d}", "TXT": f"text {i}", "x.Bin": b"%d" % i, "json": {"i": i}})
    build(tmp_path / "src", tmp_path / "rows", "mds", source=Wds(), shard_samples=15)
    found = read_mds_raw(tmp_path / "rows")
    expected = read_webdataset(tmp_path / "src")
    assert [row["key"] for row in found] == [b"a=20b/%03d" % i for i in range(40)]
    for name, column in (("txt", "txt"), ("x.bin", "x.bin"), ("json", "json")):
        assert [row[column] for row in found] == [sample[name] for sample in expected]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "c": 3, "d": 4}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    words.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def tokens_of(sources: Path, destination: Path, tokenizer: Path, **words: Any) -> None:
    inputs = resolve_inputs([str(sources)])
    options = {"tokenizer": str(tokenizer), "bos": "none", "eos": "none", "seq_len": "4", "doc_ids": ""}
    order = order_of(inputs, OrderWords(format=words.pop("format_", "mds"), token_options=options | words))
    run.build(inputs, str(destination), order)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    lines = [{"text": "a b c d"[: 1 + 2 * (i % 4)], "id": f"k{i}"} for i in range(20)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "t.jsonl"


def test_packed_tokens_are_arrays_again(build: Build, read_mds_raw: Any, tmp_path: Path, tokenizer: Path, texts: Path) -> None:
    for format_ in ("wds", "mds"):
        tokens_of(texts, tmp_path / format_, tokenizer, format_=format_)
    build(tmp_path / "wds", tmp_path / "rows", "mds", source=Wds())
    found, expected = read_mds_raw(tmp_path / "rows"), read_mds_raw(tmp_path / "mds")
    assert [row | {"doc_ids": json.loads(row["doc_ids"])} for row in found] == [
        row | {"doc_ids": json.loads(row["doc_ids"])} for row in expected
    ]
    configs = [json.loads((tmp_path / name / "index.json").read_text())["shards"][0]["column_encodings"] for name in ("rows", "mds")]
    assert configs[0] == configs[1]
    build(tmp_path / "mds", tmp_path / "tars", "wds", source=Mds())
    with tarfile.open(tmp_path / "tars" / "train-000000.tar") as archive:
        row, data = expected[0], archive.extractfile(f"{expected[0]['key'].decode()}.tokens.npy")
        assert data is not None
        assert np.load(io.BytesIO(data.read())).tobytes() == row["tokens"]


@pytest.mark.parametrize("as_json", [True, False])
def test_tokens_of_shards_are_those_of_the_records(
    build: Build, read_mds_raw: Any, tmp_path: Path, tokenizer: Path, texts: Path, as_json: bool
) -> None:
    build(texts, tmp_path / "rows", "mds", source=Jsonl(key="id"))
    map_ = None if as_json else (FieldMapping("txt", "text"),)
    build(texts, tmp_path / "tars", "wds", source=Jsonl(key="id", map=map_))
    for name, source in (("from-text", texts), ("from-rows", tmp_path / "rows"), ("from-tars", tmp_path / "tars")):
        tokens_of(source, tmp_path / name, tokenizer)
    expected = [row["tokens"] for row in read_mds_raw(tmp_path / "from-text")]
    assert len(expected) > 10
    for name in ("from-rows", "from-tars"):
        assert [row["tokens"] for row in read_mds_raw(tmp_path / name)] == expected


def test_tables_come_back_from_tars_with_their_types(build: Build, tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    count = 50
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int32()),
            "text": [f"\u00e9 {i}" for i in range(count)],
            "share": pa.array([i / 3 for i in range(count)], pa.float32()),
            "is_even": [i % 2 == 0 for i in range(count)],
            "maybe": pa.array([None if i % 5 == 0 else i for i in range(count)], pa.int64()),
            "nested": [{"a": [i], "b": None} for i in range(count)],
            "image": [{"bytes": JPEG + b"%d" % i, "path": f"{i}.jpg"} for i in range(count)],
            "mixed": [{"bytes": (JPEG if i % 2 else b"\x89PNG\r\n\x1a\n") + b"%d" % i, "path": None} for i in range(count)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(count * 4, dtype=np.float32)), 4),
            "raw": [b"%d" % i for i in range(count)],
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=16)
    build(tmp_path / "t.parquet", tmp_path / "rows", "mds", source=Parquet(), shard_samples=20)
    build(tmp_path / "t.parquet", tmp_path / "tars", "wds", source=Parquet(), shard_samples=15)
    build(tmp_path / "tars", tmp_path / "back", "mds", source=Wds(), shard_samples=20)
    same_shards(tmp_path / "back", tmp_path / "rows", "*.mds")
    build(tmp_path / "tars", tmp_path / "again", "wds", source=Wds(), shard_samples=8)
    build(tmp_path / "again", tmp_path / "late", "mds", source=Wds(), shard_samples=20)
    same_shards(tmp_path / "late", tmp_path / "rows", "*.mds")


def test_rows_of_rows_of_members_are_the_members_again(tree: Any, build: Build, tmp_path: Path) -> None:
    build(tree(pairs(30)), tmp_path / "tars", "wds", shard_samples=10)
    build(tmp_path / "tars", tmp_path / "rows", "mds", source=Wds())
    build(tmp_path / "rows", tmp_path / "other-rows", "mds", source=Mds(), shard_samples=4)
    build(tmp_path / "other-rows", tmp_path / "back", "wds", source=Mds(), shard_samples=10)
    same_shards(tmp_path / "back", tmp_path / "tars", "*.tar")


def test_members_that_may_be_missing_are_missing_again(tree: Any, build: Build, tmp_path: Path, read_tars: Any, read_mds_raw: Any) -> None:
    files = {name: data for name, data in pairs(20).items() if not name.endswith("3.json")}
    build(tree(files), tmp_path / "tars", "wds", fields=parse_field_rules("jpg,json?"))
    build(tmp_path / "tars", tmp_path / "rows", "mds", source=Wds())
    assert [row["json"] for row in read_mds_raw(tmp_path / "rows")].count(b"null") == 2
    build(tmp_path / "rows", tmp_path / "back", "wds", source=Mds())
    assert read_tars(tmp_path / "back") == read_tars(tmp_path / "tars")


@pytest.mark.parametrize("source", ["tars", "rows"])
def test_what_was_converted_is_proved_to_be_its_source(source: str, tree: Any, build: Build, tmp_path: Path) -> None:
    build(tree(pairs(30)), tmp_path / "tars", "wds", shard_samples=10)
    build(tmp_path / "tars", tmp_path / "rows", "mds", source=Wds())
    format_, kind = ("mds", Wds()) if source == "tars" else ("wds", Mds())
    build(tmp_path / source, tmp_path / "out", format_, source=kind, shard_samples=7)
    options = VerifyOptions(workers=1, against=(str(tmp_path / source),))
    sound = verify(str(tmp_path / "out"), options)
    assert sound.findings == () and any("The recipe was run again" in sentence for sentence in sound.proved())
    path = min((tmp_path / source).glob("*.tar" if source == "tars" else "*.mds"))
    path.write_bytes(path.read_bytes().replace(b"an image", b"AN image", 1))
    assert verify(str(tmp_path / "out"), options).findings
