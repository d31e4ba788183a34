"""Stops filters that look at other values than the tables hold, text that is not found for tokens, and replays that differ."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from table_inputs import JPEG, images, rich_table, write_parquet

from shardtools.build.order import Order, OrderWords, order_of
from shardtools.build.run import build
from shardtools.errors import UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.plan import ShardLimit
from shardtools.sample import Field
from shardtools.sources import Survey, SurveyRequest, Wanted, resolve_inputs
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.csv import Csv
from shardtools.sources.parquet import Parquet
from shardtools.sources.wds import Wds as WdsSource
from shardtools.verify import VerifyOptions, verify


def surveyed(source: Any, folder: Path, **more: Any) -> Survey:
    request = SurveyRequest(resolve_inputs([str(folder)]), Mds(), ShardLimit(num_bytes=1 << 26), **more)
    return source.survey(request)


def extras_of(source: Any, folder: Path, names: tuple[str, ...]) -> dict[str, list[Any]]:
    found = surveyed(source, folder, extras=names)
    batches = list(found.source.read([str(folder)], found.partitions[0].extents, print, names))
    assert len(batches) == 1
    return batches[0].extras


def packed(folder: Path, out: Path, select: Mapping[str, str], format_: str = "wds") -> None:
    inputs = resolve_inputs([str(folder)])
    build(inputs, str(out), order_of(inputs, OrderWords(format_, select_options=select)))


def write_csv(path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.getvalue().encode())


# Values beside the fields.


def test_values_beside_the_fields_are_those_of_json(tmp_path):
    write_parquet(tmp_path / "src" / "year=7" / "t.parquet", rich_table())
    names = ("u64", "day", "info.a", "info.when", "pairs.k", "ok", "tags", "year", "info.none", "vector", "price")
    found = extras_of(Parquet(), tmp_path / "src", tuple(name for name in names if name != "info.none"))
    assert found == {
        "u64": [0, 1, 2**64 - 1],
        "day": ["2024-02-29"] * 3,
        "info.a": [1, None, 3],
        "info.when": ["2024-02-29", None, "2024-02-29"],
        "pairs.k": [1, None, None],
        "ok": [True, False, True],
        "tags": [["a", None], [], ["b"]],
        "year": [7, 7, 7],
        "vector": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        "price": ["1.50", "-0.01", "0.00"],
    }


def test_a_column_that_is_not_stored_can_be_asked_for(tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", {"a.b": [1, 2], "c": images([(JPEG, "x.jpg"), None]), "d": ["p", "q"]})
    found = extras_of(Parquet(map=parse_mappings("txt=d")), tmp_path / "src", ("a.b", "c.path"))
    assert found == {"a.b": [1, 2], "c.path": ["x.jpg", None]}


def test_cells_beside_the_fields_have_their_types_and_a_misfit_is_text(tmp_path):
    write_csv(tmp_path / "src" / "t.csv", [["n", "ok", "t"], *([["1", "true", "x"]] * 1000), ["1.5", "1", "y"]])
    found = extras_of(Csv(map=parse_mappings("txt=t")), tmp_path / "src", ("n", "ok"))
    assert (found["n"][0], found["ok"][0]) == (1, True)
    assert (found["n"][1000], found["ok"][1000]) == ("1.5", "1")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_name_that_no_row_has_is_refused(tmp_path, kind):
    write_parquet(tmp_path / "parquet" / "t.parquet", {"n": [1], "t": ["x"]})
    write_csv(tmp_path / "csv" / "t.csv", [["n", "t"], ["1", "x"]])
    with pytest.raises(UsageError, match="expected a field 'no' in the first records, got key, n, t; name one of these"):
        surveyed(Parquet() if kind == "parquet" else Csv(), tmp_path / kind, extras=("no",))


@pytest.mark.parametrize("select", [{"where": "b is null"}, {"split": "train=0.5,val=0.5", "group_by": "b"}, {"where": "image is null"}])
def test_bytes_and_files_have_no_value_to_select_by_in_tables_as_in_shards(tmp_path, select):
    write_parquet(tmp_path / "src" / "t.parquet", {"b": [b"x", None], "image": images([(JPEG, None), None]), "n": [1, 2]})
    packed(tmp_path / "src", tmp_path / "mds", {}, "mds")
    for folder in ("src", "mds"):
        with pytest.raises(UsageError, match=r"expected a field '(b|image)' in the first records, got key, n; name one of these"):
            packed(tmp_path / folder, tmp_path / "out", select)


# Selections, end to end.


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_a_filtered_and_split_table_is_what_its_source_says(tmp_path, kind, format_):
    if kind == "parquet":
        write_parquet(tmp_path / "src" / "t.parquet", {"n": range(200), "t": [f"x{i % 7}" for i in range(200)]}, group_rows=30)
    else:
        write_csv(tmp_path / "src" / "t.csv", [["n", "t"], *([str(i), f"x{i % 7}"] for i in range(200))])
    select = {"where": "n < 100 and t = 'x3'", "split": "train=0.5,val=0.5", "group_by": "t"}
    packed(tmp_path / "src", tmp_path / "out", select, format_)
    manifest = (tmp_path / "out" / "shardtools.manifest").read_text()
    ledger = json.loads(manifest)["ledger"]
    assert (ledger["read"], ledger["written"], ledger["filters"]) == (200, 14, {"where": 186})
    verdict = verify(str(tmp_path / "out"), VerifyOptions(against=(str(tmp_path / "src"),)))
    assert not verdict.findings


# Text for tokens.


def wanted(source: Any, folder: Path, path: str | None, encoding: str = "str") -> list[Any]:
    name = "text" if encoding == "str" else "messages"
    found = surveyed(source, folder, wanted=Wanted(Field(name, encoding), path))
    assert found.fields == (Field(name, encoding),)
    return [value for batch in found.source.read([str(folder)], found.partitions[0].extents, print) for value in batch.columns[name]]


def test_the_wanted_text_is_read_alone_also_inside_structs(tmp_path):
    write_parquet(
        tmp_path / "src" / "t.parquet",
        {"text": ["a", "b"], "body": pa.array([{"de": "x", "n": 1}, None]), "other": pa.array([[b"no field can hold this"]] * 2)},
    )
    assert wanted(Parquet(), tmp_path / "src", None) == [b"a", b"b"]
    assert wanted(Parquet(), tmp_path / "src", "body.de") == ["x", None]


def test_messages_are_lists_of_objects(tmp_path):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    write_parquet(tmp_path / "src" / "t.parquet", {"messages": pa.array([messages])})
    write_csv(tmp_path / "csv" / "t.csv", [["messages"], [json.dumps(messages)]])
    assert wanted(Parquet(), tmp_path / "src", None, "json") == [messages]
    assert wanted(Csv(), tmp_path / "csv", None, "json") == [messages]


def test_a_wanted_text_that_is_not_there_is_refused(tmp_path):
    write_parquet(tmp_path / "src" / "t.parquet", {"body": ["a"], "n": [1]})
    write_csv(tmp_path / "csv" / "t.csv", [["body", "n"], ["a", "1"]])
    for source, folder in ((Parquet(), "src"), (Csv(), "csv")):
        with pytest.raises(UsageError, match="expected a field 'text' in the records, got body, n; choose with --text-key"):
            wanted(source, tmp_path / folder, None)


# Tars of tables, and what restores them.


def test_columns_come_back_of_tars_as_they_would_have_been_stored(tmp_path, read_mds_raw):
    table = (
        rich_table().append_column("image", images([(JPEG, None)] * 3)).append_column("scan", images([(JPEG, None), None, (JPEG, None)]))
    )
    for name, values in {"hole": [1, None, 3], "gap": [b"x", None, b""], "off": [True, None, False]}.items():
        table = table.append_column(name, pa.array(values))
    table = table.append_column("vec", pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)))
    write_parquet(tmp_path / "src" / "t.parquet", table)
    build([str(tmp_path / "src")], str(tmp_path / "tar"), Order(Parquet(), Wds()))
    build([str(tmp_path / "tar")], str(tmp_path / "back"), Order(WdsSource(), Mds()))
    build([str(tmp_path / "src")], str(tmp_path / "mds"), Order(Parquet(), Mds()))
    indexes = [json.loads((tmp_path / name / "index.json").read_text())["shards"][0] for name in ("back", "mds")]
    assert indexes[0]["column_encodings"] == indexes[1]["column_encodings"]
    assert read_mds_raw(tmp_path / "back") == read_mds_raw(tmp_path / "mds")
