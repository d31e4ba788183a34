"""Stops row groups that are lost, read twice or cut otherwise by other workers, files that are no Parquet, and tables that do not match."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from table_inputs import parquet_bytes, plain_table, rich_table, write_parquet

from shardtools import partitions as partitions_module
from shardtools import plugins
from shardtools.build.order import Order, detect_source
from shardtools.build.planning import plan_build
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, DuplicateKeyError, StorageError, UsageError
from shardtools.formats.mds import Mds
from shardtools.plan import ShardLimit
from shardtools.sources import resolve_inputs
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.parquet import Parquet, _files


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 4096)
    monkeypatch.setattr(_files, "_BATCH_ROWS", 16)


@pytest.fixture
def table_folder(tmp_path):
    """Three files in two folders; many row groups, of which some are empty."""
    root = tmp_path / "src"
    write_parquet(root / "a.parquet", plain_table(400, 1), group_rows=37)
    write_parquet(root / "sub" / "b.parquet", plain_table(150, 2), group_rows=150)
    write_parquet(root / "sub" / "c.PARQUET", plain_table(0, 3))
    write_parquet(root / "sub" / "d.pq", plain_table(61, 4), group_rows=10)
    (root / "_SUCCESS").write_bytes(b"")
    (root / "notes.txt").write_bytes(b"no table")
    return root


def rows_of(folder: Path) -> list[dict[str, object]]:
    names = ("a.parquet", "sub/b.parquet", "sub/d.pq")
    return [row for name in names for row in parquet.read_table(folder / name).to_pylist()]


def keys() -> list[str]:
    counts = {"a": 400, "sub/b": 150, "sub/d": 61}
    return [f"{name}/{i:012d}" for name, count in counts.items() for i in range(count)]


# Order, partitions, workers.


def test_rows_come_in_the_order_of_files_and_row_groups(build, read_tars, tmp_path, table_folder):
    result = build(table_folder, tmp_path / "out", "wds", source=Parquet(), shard_bytes=65536)
    members = read_tars(tmp_path / "out")
    assert [json.loads(value) for value in members.values()] == rows_of(table_folder)
    assert [name.removesuffix(".json") for name in members] == keys()
    assert result.survey.skipped == {"not Parquet": 2}


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_any_workers_in_any_order_publish_the_same_files(build, digests, tmp_path, table_folder, format_):
    found = []
    for i, engine in enumerate([Serial(), Processes(3)]):
        result = build(table_folder, tmp_path / str(i), format_, source=Parquet(), engine=engine, shard_bytes=20480)
        assert len(result.survey.partitions) > 5
        found.append(digests(tmp_path / str(i)))
    assert found[0] == found[1]


def test_a_number_of_samples_is_kept_across_row_groups_and_partitions(build, read_tars, tmp_path, table_folder):
    result = build(table_folder, tmp_path / "out", "wds", source=Parquet(), shard_samples=25)
    counts = [partition.num_samples for partition in result.survey.partitions]
    assert len(counts) > 3 and all(count % 25 == 0 for count in counts[:-1])
    assert sum(len(partition.extents) for partition in result.survey.partitions) < 19 + len(counts)
    assert [shard.num_samples for shard in result.manifest.shards] == [25] * 24 + [11]
    members = read_tars(tmp_path / "out")
    assert [json.loads(value) for value in members.values()] == rows_of(table_folder)
    assert [name.removesuffix(".json") for name in members] == keys()


def test_a_row_group_is_never_cut_where_bytes_decide(table_folder):
    planned = plan_build([str(table_folder)], Order(Parquet(), Mds(), ShardLimit(num_bytes=20480)))
    counts = [partition.num_samples for partition in planned.plan.partitions]
    assert sum(counts) == 611 and len(counts) > 5
    assert sum(len(partition.extents) for partition in planned.plan.partitions) == 11 + 1 + 7


def test_the_recipe_restores_the_source_and_the_plan(table_folder, tmp_path):
    write_parquet(tmp_path / "rich" / "year=7" / "t.parquet", rich_table())
    for folder, options in (
        (table_folder, {"key": "id", "keep_path": True, "map": parse_mappings("cls=n,txt=text?")}),
        (tmp_path / "rich", {}),
    ):
        for format_ in ("wds", "mds"):
            planned = plan_build([str(folder)], Order(Parquet(**options), plugins.load("formats", format_)()))
            plain = json.loads(json.dumps(planned.plan.recipe.as_json()))
            assert plugins.restored("sources", plain["source"]) == planned.plan.recipe.source


def test_a_row_group_larger_than_memory_should_be_is_read_in_parts(tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", {"raw": [bytes([i % 256]) * 100_000 for i in range(200)]}, group_rows=200)
    planned = plan_build([str(tmp_path / "src")], Order(Parquet(), Mds()))
    source, partition = planned.plan.recipe.source, planned.plan.partitions[0]
    sizes = [sum(map(len, batch.columns["raw"])) for batch in source.read(planned.roots, partition.extents, print)]
    assert sum(sizes) == 20_000_000 and len(partition.extents) == 1
    assert max(sizes) < 5_000_000


# Folders that spell columns.


def test_folders_spell_columns_as_pyarrow_reads_them(build, read_tars, tmp_path):
    root = tmp_path / "src"
    for folder in ("year=2024/m=01/c=a%20b", "year=__HIVE_DEFAULT_PARTITION__/m=-2/c=5", "year=7/m=2147483647/c=x=y"):
        write_parquet(root / folder / "t.parquet", {"v": [1, 2]})
    build(root, tmp_path / "out", "wds", source=Parquet())
    expected = dataset.dataset(root, partitioning="hive", format="parquet")
    assert [str(field.type) for field in expected.schema] == ["int64", "int32", "int32", "string"]
    found = {name: json.loads(value) for name, value in read_tars(tmp_path / "out").items()}
    assert sorted(map(json.dumps, found.values())) == sorted(map(json.dumps, expected.to_table().to_pylist()))
    assert found["year=3D2024/m=3D01/c=3Da=2520b/t/000000000001.json"] == {"v": 2, "year": 2024, "m": 1, "c": "a b"}


def test_a_spelled_column_has_a_type_and_can_be_mapped_and_be_the_key(build, read_mds_raw, tmp_path):
    for year in (1, 2):
        write_parquet(tmp_path / "src" / f"year={year}" / f"name=n{year}" / "t.parquet", {"v": [year * 10]})
    build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet(key="name", map=parse_mappings("y=year,v=v")))
    entry = json.loads((tmp_path / "out" / "index.json").read_text())["shards"][0]
    assert entry["column_encodings"] == ["str", "int", "int32"]
    assert [(row["key"], row["y"]) for row in read_mds_raw(tmp_path / "out")] == [(b"n1", b"\1\0\0\0"), (b"n2", b"\2\0\0\0")]


def test_a_column_in_the_files_and_in_their_folders_is_refused(build, tmp_path):
    write_parquet(tmp_path / "src" / "v=1" / "t.parquet", {"v": [1]})
    with pytest.raises(UsageError, match=r"got 'v' in both of .*/v=1/t.parquet"):
        build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet())


# Files that do not fit.


def test_files_with_other_columns_are_refused_by_name(build, tmp_path):
    root = tmp_path / "src"
    write_parquet(root / "a.parquet", {"n": pa.array([1], pa.int32()), "t": ["x"]})
    write_parquet(root / "b.parquet", {"n": pa.array([1], pa.int64()), "t": ["x"], "more": [1]})
    with pytest.raises(UsageError, match=r"got 'more' as no such column in .*a.parquet and int64 in .*b.parquet"):
        build(root, tmp_path / "out", "wds", source=Parquet())
    with pytest.raises(UsageError, match=r"got 'n' as int32 in .*a.parquet and int64 in .*b.parquet"):
        build(root, tmp_path / "out", "wds", source=Parquet(map=parse_mappings("cls=n")))
    result = build(root, tmp_path / "out", "wds", source=Parquet(map=parse_mappings("txt=t")))
    assert result.manifest.ledger.num_written == 2


def test_columns_in_another_order_or_as_a_dictionary_are_the_same(build, read_mds_raw, tmp_path):
    write_parquet(tmp_path / "src" / "a.parquet", {"n": [1], "t": ["x"]})
    write_parquet(tmp_path / "src" / "b.parquet", {"t": pa.array(["y"]).dictionary_encode(), "n": [2]})
    build(tmp_path / "src", tmp_path / "out", "mds", source=Parquet())
    assert [(row["t"], row["n"][0]) for row in read_mds_raw(tmp_path / "out")] == [(b"x", 1), (b"y", 2)]


def test_a_column_of_nulls_alone_may_be_of_any_type(build, read_tars, tmp_path):
    write_parquet(tmp_path / "src" / "a.parquet", {"n": pa.nulls(2), "t": ["x", "y"]})
    write_parquet(tmp_path / "src" / "b.parquet", {"n": [1, 2], "t": pa.nulls(2)})
    build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet())
    records = [json.loads(value) for value in read_tars(tmp_path / "out").values()]
    assert records == [{"n": None, "t": "x"}, {"n": None, "t": "y"}, {"n": 1, "t": None}, {"n": 2, "t": None}]


def not_parquet() -> dict[str, bytes]:
    sound = parquet_bytes({"n": [1, 2]})
    return {
        "empty": b"",
        "short": b"PAR1",
        "text": b"n\n1\n2\n" * 10,
        "truncated": sound[:-30],
        "footer": sound[:-20] + b"\xff" * 12 + sound[-8:],
        "names": parquet_bytes({"column_name": [1]}).replace(b"column_name", b"column\xf4name"),
        "length": sound[:-8] + b"\xff\xff\xff\x7f" + b"PAR1",
    }


@pytest.mark.parametrize("kind", not_parquet())
def test_what_is_no_parquet_file_is_refused_by_name(build, tree, tmp_path, one_sentence, kind):
    root = tree({"a.parquet": parquet_bytes({"n": [1]}), "b.parquet": not_parquet()[kind]})
    with pytest.raises(UsageError, match=r"expected a Parquet file, got .*/b.parquet, which cannot be read as one") as error:
        build(root, tmp_path / "out", "wds", source=Parquet())
    one_sentence(error.value)


def test_an_encrypted_file_is_refused_as_such(build, tree, tmp_path):
    sound = parquet_bytes({"n": [1]})
    root = tree({"a.parquet": sound[:-4] + b"PARE"})
    with pytest.raises(UsageError, match=r"not encrypted, got .*/a.parquet, which is; decrypt it first"):
        build(root, tmp_path / "out", "wds", source=Parquet())


def test_two_columns_of_one_name_are_refused(build, tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    write_parquet(tmp_path / "src" / "a.parquet", table)
    with pytest.raises(UsageError, match=r"expected columns of different names, got two 'n' in .*a.parquet"):
        build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet())


def test_tables_without_rows_are_refused(build, tmp_path):
    write_parquet(tmp_path / "src" / "a.parquet", plain_table(0))
    with pytest.raises(UsageError, match="expected at least one row that can be read, got none in"):
        build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet())


def test_no_parquet_files_are_refused(build, tree, tmp_path):
    with pytest.raises(UsageError, match=r"expected .parquet or .pq files, got none in"):
        build(tree({"a.txt": b"x"}), tmp_path / "out", "wds", source=Parquet())


def test_files_that_differ_in_their_suffix_alone_would_have_the_same_keys(build, tmp_path):
    for name in ("a.parquet", "a.pq"):
        write_parquet(tmp_path / "src" / name, {"id": [name]})
    with pytest.raises(DuplicateKeyError, match=r"a.parquet and .*a.pq"):
        build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet())
    build(tmp_path / "src", tmp_path / "out", "wds", source=Parquet(key="id"))


def test_parquet_is_found_by_its_suffix(table_folder):
    assert detect_source(resolve_inputs([str(table_folder / "sub")])) == "parquet"


# Damage and change after planning.


def damaged(folder: Path, name: str, group: int) -> None:
    """Overwrites the data of one row group's last column."""
    path = folder / name
    chunk = parquet.ParquetFile(path).metadata.row_group(group).column(4)
    data = bytearray(path.read_bytes())
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    data[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)


def test_a_damaged_row_group_is_one_bad_sample_and_the_others_are_read(build, tmp_path, table_folder, one_sentence):
    damaged(table_folder, "a.parquet", 3)
    with pytest.raises(BadSampleError, match=r"a.parquet, row 111: expected a sound row group, got a damaged one") as error:
        build(table_folder, tmp_path / "out", "mds", source=Parquet())
    one_sentence(error.value)
    result = build(table_folder, tmp_path / "out", "mds", source=Parquet(), max_bad="1")
    assert (result.manifest.ledger.num_written, dict(result.manifest.ledger.rejects)) == (611 - 37, {"damaged-row-group": 1})


@pytest.mark.parametrize("change", ["gone", "longer", "other columns", "no table"])
def test_a_file_that_changes_after_planning_stops_the_run(tmp_path, one_sentence, change):
    path = write_parquet(tmp_path / "src" / "t.parquet", {"name": ["a"] * 10})
    planned = plan_build([str(tmp_path / "src")], Order(Parquet(), Mds()))
    size = path.stat().st_size
    if change == "gone":
        path.unlink()
    elif change == "longer":
        path.write_bytes(path.read_bytes() + b"x")
    else:
        other = parquet_bytes({"size": ["a"] * 10}) if change == "other columns" else b"x" * size
        assert len(other) == size
        path.write_bytes(other)
    found: list[object] = []
    read = planned.plan.recipe.source.read(planned.roots, planned.plan.partitions[0].extents, found.append)
    if change == "no table":
        assert list(read) == [] and [reject.reason for reject in found] == ["damaged-file"]
        return
    with pytest.raises(StorageError, match=r"t.parquet") as error:
        list(read)
    one_sentence(error.value)


# Buckets.


def test_a_bucket_gives_what_its_folder_gives(same_as_local, table_folder):
    same_as_local(table_folder, "mds", source=Parquet(), shard_samples=40)
