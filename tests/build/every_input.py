"""The same records as every source reads them, for tests that hold for all of them."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from scattering import pack, write_records

from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds

Records = Sequence[dict[str, Any]]
FIELDS = "n=n,group=group,text=text"
"""What shards hold beside the key."""


def jsonl(folder: Path, records: Records) -> None:
    write_records(folder, records)


def files(folder: Path, records: Records) -> None:
    folder.mkdir()
    for record in records:
        (folder / f"{record['id']}.txt").write_text(record["text"])


def table(folder: Path, records: Records) -> None:
    folder.mkdir()
    with open(folder / "t.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "n", "group", "text"])
        writer.writeheader()
        writer.writerows(records)


def parquet(folder: Path, records: Records) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: it makes the tables")
    tables = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: it makes the tables")
    folder.mkdir()
    tables.write_table(pyarrow.Table.from_pylist(records), folder / "t.parquet", row_group_size=50)


def wds(folder: Path, records: Records) -> None:
    pack(write_records(folder.with_name("lines"), records), folder, Wds(), map=FIELDS)


def mds(folder: Path, records: Records) -> None:
    pack(write_records(folder.with_name("lines"), records), folder, Mds(key_column="key"), map=FIELDS)


INPUTS: dict[str, Callable[[Path, Records], None]] = {
    "jsonl": jsonl,
    "files": files,
    "csv": table,
    "parquet": parquet,
    "wds": wds,
    "mds": mds,
}
"""Writes the records, whose names are ``id``, ``n``, ``group`` and ``text``, as the source reads them."""
READ_WITH: dict[str, dict[str, str]] = {name: {"key": "id"} for name in ("jsonl", "csv", "parquet")}
"""Options of the source for keys that are those of the records."""
