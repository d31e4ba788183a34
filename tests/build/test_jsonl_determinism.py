"""Stops workers, partitions or neighbours from reaching the bytes of a dataset of records, and shards that are not as large as promised."""

import gzip
import hashlib
import json
import random
import struct
import tarfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from shuffled_engine import Shuffled

from shardtools import partitions as partitions_module
from shardtools.build.run import Listener
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sources import _lines
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.jsonl import Jsonl

SHARD_BYTES = 20480
MAP = "txt=text,cls=n,score=score,flag=ok"
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "wds": (Wds(), {}),
    "wds map": (Wds(), {"map": parse_mappings(MAP)}),
    "mds": (Mds(hashes=("sha1", "xxh64")), {}),
    "mds zstd": (Mds(compression="zstd"), {"key": "id"}),
}

# Of the input of test_the_bytes_are_these_for_ever: by Python's tarfile, and by MDSWriter 0.13.0.
GOLDEN_WDS = "183d4c5494d4e4873f2e1e0e26fa1b3b9a372598bd79218438b9fc85e86ab9c4"
GOLDEN_WDS_MAP = "4e31d9f9d0a41cf9ef1cf7ec16c3f43c676a714fe3f213072a1c88b1b2af2216"
GOLDEN_MDS = "c4400b6fb3afa851cf2f4327dd39f56c15ec9e91e4280cc1fdbba6aca1b6da16"
GOLDEN_INDEX = "c7e80fb9d2e6c89d3e0d88ed4f547911a3b24f356d77a074bb4ca642a741fd00"


def make_records(count: int, seed: int = 1, longest: int = 300) -> list[dict[str, Any]]:
    numbers = random.Random(seed)
    return [
        {
            "id": f"{seed}/{i}",
            "n": numbers.randint(-5, 5),
            "score": numbers.random(),
            "ok": numbers.random() < 0.5,
            "text": "".join(numbers.choices("abcdé画\u2028 ", k=numbers.randint(0, longest))),
            "meta": None if i % 7 == 0 else {"tags": ["x"] * (i % 4), "big": 2**70 + i},
        }
        for i in range(count)
    ]


def as_lines(records: Iterable[Any], end: bytes = b"\n") -> bytes:
    return b"".join(json.dumps(item, ensure_ascii=False).encode() + end for item in records)


@pytest.fixture
def partitions(monkeypatch) -> Callable[[int], None]:
    """Set the least size of partitions, so that little input has many."""

    def small(num_bytes: int) -> None:
        monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", num_bytes)

    return small


@pytest.fixture
def source(tmp_path) -> Path:
    """Three plain files, one of them in a folder, and two compressed ones."""
    root = tmp_path / "src"
    (root / "sub").mkdir(parents=True)
    (root / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + as_lines(make_records(200, 1), b"\r\n"))
    (root / "b.ndjson").write_bytes(as_lines(make_records(300, 2)).removesuffix(b"\n"))
    (root / "sub" / "c.jsonl").write_bytes(b"\n\n" + as_lines(make_records(5, 3), b"\n\n"))
    (root / "d.jsonl.gz").write_bytes(gzip.compress(as_lines(make_records(80, 4)), mtime=0))
    (root / "e.jsonl.zst").write_bytes(zstandard.compress(as_lines(make_records(60, 5))))
    return root


def counting() -> tuple[Listener, list[int]]:
    counts: list[int] = []
    return Listener(on_plan=lambda planned: counts.append(len(planned.plan.partitions))), counts


# Engines and orders.


@pytest.mark.parametrize("way", WAYS)
def test_every_order_of_work_publishes_the_same_files(source, build, digests, tmp_path, partitions, way):
    partitions(8192)
    chosen, options = WAYS[way]
    found = []
    for i, engine in enumerate([Serial(), Shuffled(1), Shuffled(2)]):
        listener, counts = counting()
        build(source, tmp_path / str(i), chosen, source=Jsonl(**options), engine=engine, shard_bytes=SHARD_BYTES, listener=listener)
        assert counts[0] > 10
        found.append(digests(tmp_path / str(i)))
    assert len(found[0]) > 10
    assert found[1] == found[0] == found[2]


@pytest.mark.parametrize(("way", "workers"), [("wds map", 2), ("mds", 1), ("mds", 2), ("mds", 5)])
def test_any_number_of_processes_publishes_what_one_does(source, build, digests, tmp_path, partitions, way, workers):
    partitions(8192)
    chosen, options = WAYS[way]
    build(source, tmp_path / "serial", chosen, source=Jsonl(**options), shard_bytes=SHARD_BYTES)
    build(source, tmp_path / "processes", chosen, source=Jsonl(**options), engine=Processes(workers), shard_bytes=SHARD_BYTES)
    assert digests(tmp_path / "processes") == digests(tmp_path / "serial")


def test_rejects_are_the_same_for_any_order(source, build, digests, tmp_path, partitions):
    partitions(8192)
    text = (source / "b.ndjson").read_bytes().split(b"\n")
    text[17::90] = [b'{"cut": '] * len(text[17::90])
    (source / "b.ndjson").write_bytes(b"\n".join(text))
    for i, engine in enumerate([Serial(), Shuffled(1), Processes(3)]):
        result = build(source, tmp_path / str(i), "mds", source=Jsonl(), engine=engine, shard_bytes=SHARD_BYTES, max_bad="1%")
        assert result.manifest.ledger.as_json()["rejects"] == {"invalid-json": 4}
    assert digests(tmp_path / "0") == digests(tmp_path / "1") == digests(tmp_path / "2")


def test_the_size_of_blocks_changes_nothing(source, build, digests, tmp_path, partitions, monkeypatch):
    partitions(8192)
    # How much a compressed file will give is estimated from its first block, so these two are planned otherwise.
    (source / "d.jsonl.gz").unlink()
    (source / "e.jsonl.zst").unlink()
    build(source, tmp_path / "one", "mds", source=Jsonl(), shard_bytes=SHARD_BYTES)
    monkeypatch.setattr(_lines, "BLOCK_BYTES", 333)
    build(source, tmp_path / "two", "mds", source=Jsonl(), shard_bytes=SHARD_BYTES)
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_files_of_a_folder_give_what_the_folder_gives(source, build, digests, tmp_path):
    (source / "sub" / "c.jsonl").unlink()
    (source / "sub").rmdir()
    build(source, tmp_path / "folder", source=Jsonl())
    build(sorted(source.iterdir(), reverse=True), tmp_path / "files", source=Jsonl())
    assert digests(tmp_path / "files") == digests(tmp_path / "folder")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wds", "mds"])
def test_a_large_file_is_cut_alike_by_serial_and_processes(build, digests, tmp_path, way):
    root = tmp_path / "src"
    root.mkdir()
    with open(root / "large.jsonl", "wb") as file:
        for seed in range(60):
            file.write(as_lines(make_records(2000, seed, longest=600)))
    assert (root / "large.jsonl").stat().st_size > 60 << 20
    found = []
    for i, engine in enumerate([Serial(), Shuffled(1), Processes(1), Processes(2), Processes(5)]):
        listener, counts = counting()
        build(root, tmp_path / str(i), WAYS[way][0], source=Jsonl(key="id"), engine=engine, shard_bytes=4 << 20, listener=listener)
        assert counts[0] >= 4
        found.append(digests(tmp_path / str(i)))
    assert all(other == found[0] for other in found)


# Shards.


def tar_counts(folder: Path) -> list[int]:
    """Members of each tar, by tarfile."""
    counts = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            counts.append(len(archive.getnames()))
    return counts


def mds_counts(folder: Path) -> list[int]:
    """Samples of each shard, by its own first four bytes."""
    return [struct.unpack("<I", path.read_bytes()[:4])[0] for path in sorted(folder.glob("*.mds"))]


@pytest.mark.parametrize(("shard_samples", "partition_bytes"), [(1, 1), (7, 1), (7, 20_000), (50, 20_000), (5000, 1)])
def test_shards_have_exactly_so_many_samples_and_the_last_one_the_rest(source, build, tmp_path, partitions, shard_samples, partition_bytes):
    if shard_samples == 1:
        for name in ("a.jsonl", "b.ndjson", "d.jsonl.gz"):
            (source / name).unlink()
    partitions(partition_bytes)
    build(source, tmp_path / "out", source=Jsonl(), shard_samples=shard_samples)
    total = 65 if shard_samples == 1 else 645
    wanted = [shard_samples] * (total // shard_samples) + ([total % shard_samples] if total % shard_samples else [])
    assert tar_counts(tmp_path / "out") == wanted


def test_shards_of_columns_have_exactly_so_many_samples_too(source, build, tmp_path, partitions):
    partitions(4096)
    build(source, tmp_path / "out", "mds", source=Jsonl(), shard_samples=100)
    assert mds_counts(tmp_path / "out") == [100] * 6 + [45]


def test_so_many_samples_a_shard_for_any_number_of_processes(source, build, digests, tmp_path, partitions):
    partitions(4096)
    build(source, tmp_path / "serial", source=Jsonl(), shard_samples=64)
    build(source, tmp_path / "processes", source=Jsonl(), shard_samples=64, engine=Processes(3))
    assert digests(tmp_path / "processes") == digests(tmp_path / "serial")


def test_rejects_shorten_only_the_last_shard_of_their_partition(build, tmp_path, partitions):
    partitions(1)
    (tmp_path / "src").mkdir()
    lines = as_lines({"n": i} for i in range(30)).split(b"\n")
    lines[12] = b"bad"
    (tmp_path / "src" / "f.jsonl").write_bytes(b"\n".join(lines))
    build(tmp_path / "src", tmp_path / "out", source=Jsonl(), shard_samples=10, max_bad="1")
    assert tar_counts(tmp_path / "out") == [10, 9, 10]


@pytest.mark.parametrize("shard_bytes", [10_240, 50_001])
@pytest.mark.parametrize("way", WAYS)
def test_no_shard_is_larger_than_asked_for(source, build, tmp_path, partitions, way, shard_bytes):
    partitions(4096)
    chosen, options = WAYS[way]
    result = build(source, tmp_path / "out", chosen, source=Jsonl(**options), shard_bytes=shard_bytes)
    files = [path for path in (tmp_path / "out").iterdir() if path.suffix in (".tar", ".mds", ".zstd")]
    assert len(files) == len(result.manifest.shards) > 2
    assert max(path.stat().st_size for path in files) <= shard_bytes
    if chosen == Mds(compression="zstd"):
        index = json.loads((tmp_path / "out" / "index.json").read_text())
        assert all(shard["raw_data"]["bytes"] <= shard_bytes for shard in index["shards"])
    assert result.warnings == []


def test_a_record_above_the_limit_gets_a_shard_of_its_own_and_a_warning(build, tmp_path, read_tars):
    (tmp_path / "src").mkdir()
    sizes = [10, 10, 30_000, 10, 50_000]
    (tmp_path / "src" / "f.jsonl").write_bytes(as_lines({"t": "x" * size} for size in sizes))
    result = build(tmp_path / "src", tmp_path / "out", source=Jsonl(), shard_bytes=SHARD_BYTES)
    assert tar_counts(tmp_path / "out") == [2, 1, 1, 1]
    assert len(result.warnings) == 1 and "2 samples above the shard size" in result.warnings[0] and "f/000000000040" in result.warnings[0]
    assert [len(data) for data in read_tars(tmp_path / "out").values()] == [size + 9 for size in sizes]


@pytest.mark.parametrize(("way", "num_files"), [("wds", 1), ("wds map", 13), ("mds", 13)])
def test_from_a_hundred_shards_on_they_are_nine_tenths_full(build, tmp_path, partitions, way, num_files):
    partitions(1)
    # Tars are padded to 10 KiB, so that other limits could not be filled.
    root, shard_bytes = tmp_path / "src", 60 << 10
    root.mkdir()
    records = make_records(8000, 9, longest=900)
    for i in range(num_files):
        (root / f"{i:02d}.jsonl").write_bytes(as_lines(records[i::num_files]))
    chosen, options = WAYS[way]
    listener, counts = counting()
    result = build(root, tmp_path / "out", chosen, source=Jsonl(**options), shard_bytes=shard_bytes, listener=listener)
    num_bytes = [shard.num_bytes for shard in result.manifest.shards]
    assert counts[0] > 8 and max(num_bytes) <= shard_bytes
    assert len(num_bytes) >= 100
    assert sum(num_bytes) >= 0.9 * shard_bytes * len(num_bytes)


# Neighbours.


@pytest.mark.parametrize("name", ["0.jsonl", "a0.jsonl.gz", "sub/b.jsonl", "z.jsonl"])
def test_another_file_changes_no_key(source, build, read_tars, tmp_path, name):
    build(source, tmp_path / "before", source=Jsonl())
    added = as_lines([{"new": i} for i in range(40)])
    (source / name).write_bytes(gzip.compress(added) if name.endswith(".gz") else added)
    build(source, tmp_path / "after", source=Jsonl())
    before, after = read_tars(tmp_path / "before"), read_tars(tmp_path / "after")
    assert len(before) == 645 and len(after) == 685
    assert all(after[member] == data for member, data in before.items())


def test_lines_at_the_end_of_a_file_change_no_key(source, build, read_tars, tmp_path):
    build(source, tmp_path / "before", source=Jsonl())
    with open(source / "b.ndjson", "ab") as file:
        file.write(b'\n{"new": 1}')
    build(source, tmp_path / "after", source=Jsonl())
    before, after = read_tars(tmp_path / "before"), read_tars(tmp_path / "after")
    assert len(after) == len(before) + 1 and all(after[member] == data for member, data in before.items())


# The reference writer.


ENCODINGS = {"id": "str", "n": "int", "score": "float64", "ok": "uint8", "text": "str", "meta": "json"}


def offsets_of(text: bytes) -> list[int]:
    found, at = [], 0
    for line in text.split(b"\n"):
        if line.strip():
            found.append(at)
        at += len(line) + 1
    return found


@pytest.mark.train
@pytest.mark.parametrize("shard_bytes", [8192, 100_000, 1 << 26])
@pytest.mark.parametrize("hashes", [(), ("sha1", "xxh64")], ids=len)
def test_files_equal_those_of_the_reference_writer(build, streaming, tmp_path, shard_bytes, hashes):
    records = make_records(700, 6)
    text = as_lines(records)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "docs.jsonl").write_bytes(text)
    build(tmp_path / "src", tmp_path / "ours", Mds(hashes=hashes), source=Jsonl(), shard_bytes=shard_bytes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = {**ENCODINGS, "key": "str"}
        with streaming.MDSWriter(out=str(tmp_path / "theirs"), columns=columns, size_limit=shard_bytes, hashes=sorted(hashes)) as out:
            for offset, row in zip(offsets_of(text), records, strict=True):
                out.write({**row, "ok": int(row["ok"]), "key": f"docs/{offset:012d}"})
    names = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert names[0] == "index.json" and (len(names) > 2) == (shard_bytes < 1 << 26)
    for name in names:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name
    assert sorted(path.name for path in (tmp_path / "ours").glob("*.mds")) == [name for name in names if name.endswith(".mds")]


@pytest.mark.train
def test_rows_of_many_partitions_equal_those_of_the_reference_writer(build, streaming, read_mds_raw, tmp_path, partitions):
    partitions(4096)
    records = make_records(900, 8)
    text = as_lines(records)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "docs.jsonl").write_bytes(text)
    encodings = {"score": "float32", "n": "int8", "meta": "json"}
    build(tmp_path / "src", tmp_path / "ours", "mds", source=Jsonl(key="id"), encodings=encodings, shard_bytes=SHARD_BYTES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = {**ENCODINGS, **encodings, "key": "str"}
        with streaming.MDSWriter(out=str(tmp_path / "theirs"), columns=columns) as out:
            for row in records:
                out.write({**row, "ok": int(row["ok"]), "key": row["id"]})
    ours = read_mds_raw(tmp_path / "ours")
    assert len(list((tmp_path / "ours").glob("*.mds"))) > 10
    assert ours == read_mds_raw(tmp_path / "theirs")


@pytest.mark.train
def test_the_reference_reader_gives_the_values_of_the_records(source, build, read_streaming, tmp_path, partitions):
    partitions(8192)
    build(source, tmp_path / "out", "mds", source=Jsonl(key="id"), shard_bytes=SHARD_BYTES)
    wanted = {item["id"]: item for seed, count in ((1, 200), (2, 300), (3, 5), (4, 80), (5, 60)) for item in make_records(count, seed)}
    rows = read_streaming(tmp_path / "out")
    assert len(rows) == 645
    for row in rows:
        assert {name: row[name] for name in ENCODINGS} == wanted.pop(row["key"])
    assert wanted == {}


# For ever.


def test_the_bytes_are_these_for_ever(build, digests, tmp_path, ustar):
    lines = [
        b'{"n": %d, "text": "%s", "meta": {"i": [%d, null, 1.5]}, "f": %d.25}' % (i, "é\u2028".encode() * i, 2**66 + i, i)
        for i in range(40)
    ]
    text = b"\r\n".join(lines)
    (tmp_path / "src" / "in").mkdir(parents=True)
    (tmp_path / "src" / "in" / "docs.v1.jsonl").write_bytes(text)
    build(tmp_path / "src", tmp_path / "wds", source=Jsonl())
    build(tmp_path / "src", tmp_path / "map", source=Jsonl(map=parse_mappings("txt=text,cls=n")))
    build(tmp_path / "src", tmp_path / "mds", "mds", source=Jsonl())
    keys = [f"in/docs=2Ev1/{offset:012d}" for offset in offsets_of(text)]
    whole = ustar([(f"{key}.json", line) for key, line in zip(keys, lines, strict=True)])
    rows = list(map(json.loads, lines))
    members = ustar(
        [
            pair
            for key, row in zip(keys, rows, strict=True)
            for pair in ((f"{key}.cls", b"%d" % row["n"]), (f"{key}.txt", row["text"].encode()))
        ]
    )
    assert hashlib.sha256(whole).hexdigest() == GOLDEN_WDS == digests(tmp_path / "wds")["train-000000.tar"]
    assert hashlib.sha256(members).hexdigest() == GOLDEN_WDS_MAP == digests(tmp_path / "map")["train-000000.tar"]
    assert digests(tmp_path / "mds")["shard.00000.mds"] == GOLDEN_MDS
    assert digests(tmp_path / "mds")["index.json"] == GOLDEN_INDEX
