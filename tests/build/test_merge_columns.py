"""Stops a merged dataset from forgetting of which columns, or of which files, its samples were made: conversions would not restore them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from shardtools.build.merge import merge
from shardtools.build.order import Order
from shardtools.build.run import build as build_order
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sources.mds import Mds as MdsSource
from shardtools.sources.parquet import Parquet
from shardtools.sources.wds import Wds as WdsSource
from shardtools.verify import verify


def table(path: Path, number_type: Any = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "n": pa.array([1, -2], number_type or pa.int16()),
        "raw": [b"\0", path.name.encode()],
        "text": ["\u00e9", path.name],
        "vec": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
    }
    parquet.write_table(pa.table(columns), path)


def packed(source: Any, src: Path, format_: Any, out: Path) -> Path:
    build_order([str(src)], str(out), Order(source, format_))
    return out


def merged(parts: list[Path], out: Path) -> Path:
    merge([str(part) for part in parts], str(out))
    return out


def encodings(folder: Path) -> dict[str, str]:
    entry = json.loads((folder / "index.json").read_text())["shards"][0]
    return dict(zip(entry["column_names"], entry["column_encodings"], strict=True))


def test_columns_of_merged_tars_come_back(tmp_path, read_mds_raw):
    for name in ("a", "b", "c"):
        table(tmp_path / "src" / f"{name}.parquet")
        packed(Parquet(), tmp_path / "src" / f"{name}.parquet", Wds(), tmp_path / name)
    first = merged([tmp_path / "a", tmp_path / "b"], tmp_path / "first")
    whole = merged([first, tmp_path / "c"], tmp_path / "whole")
    back = packed(WdsSource(), whole, Mds(), tmp_path / "back")
    direct = packed(Parquet(), tmp_path / "src", Mds(), tmp_path / "direct")
    assert encodings(back) == {"key": "str", "n": "int16", "raw": "bytes", "text": "str", "vec": "ndarray:int8:2"}
    assert encodings(back) == encodings(direct)
    assert read_mds_raw(back) == read_mds_raw(direct)
    assert not verify(str(whole)).findings


def test_columns_that_differ_are_not_said_to_be_those_of_all(tmp_path):
    for name, kind in (("a", pa.int16()), ("b", pa.int32())):
        table(tmp_path / "src" / f"{name}.parquet", kind)
        packed(Parquet(), tmp_path / "src" / f"{name}.parquet", Wds(), tmp_path / name)
    whole = merged([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")
    manifest, _ = json.JSONDecoder().raw_decode((whole / "shardtools.manifest").read_text())
    assert "layout" not in manifest["recipe"]["source"]


@pytest.mark.parametrize("number", [1, 2])
def test_columns_that_were_files_are_members_again(tmp_path, build, read_tars, number):
    contents = {"cls": b"3", "json": b'{"q": 1}', "txt": b"x"}
    for name in ("a", "b")[:number]:
        for extension, data in contents.items():
            path = tmp_path / f"src-{name}" / f"{name}.{extension}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        build(tmp_path / f"src-{name}", tmp_path / name, Mds())
    whole = merged([tmp_path / name for name in ("a", "b")[:number]], tmp_path / "whole")
    back = packed(MdsSource(), whole, Wds(), tmp_path / "back")
    expected = {f"{name}.{extension}": data for name in ("a", "b")[:number] for extension, data in contents.items()}
    assert read_tars(back) == expected
