"""Two packs of one source that are told apart though they hold the same, or taken for equal though one sample is not.

Tars have as members, and in one JSON member, what MDS has as columns. Each source is packed in both formats, and converted from one to
the other; then one value is changed in the source of one of the two.
"""

import io
import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardtools.build.merge import merge
from shardtools.errors import UsageError

Change = Callable[[list[dict[str, Any]]], object]
NUM = 9
KEY = {"source_options": {"key": "id"}}


def _image(i: int, kind: str = "jpg") -> bytes:
    return {"jpg": b"\xff\xd8\xff\xe0", "png": b"\x89PNG\r\n\x1a\n"}[kind] + bytes([i]) * 9


def _rows() -> list[dict[str, Any]]:
    return [
        {"id": f"r{i}", "n": i, "x": i / 7, "b": i % 2 == 0, "t": f"täxt {i}", "u": None if i % 3 == 0 else "w", "m": [1, i]}
        for i in range(NUM)
    ]


def _media_rows() -> list[dict[str, Any]]:
    """Images of two kinds, some absent; bytes, some absent; arrays."""
    rows = _rows()
    for i, row in enumerate(rows):
        kind = "png" if i % 2 else "jpg"
        row["image"] = None if i == 4 else {"bytes": _image(i, kind), "path": f"{i}.{kind}"}
        row["raw"] = None if i == 5 else bytes([i, 0, 255])
        row["v"] = [i, 0.5]
    return rows


def _parquet(folder: Path, rows: list[dict[str, Any]]) -> Path:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    typed = {"n": pa.int16(), "x": pa.float32(), "raw": pa.binary()}
    arrays = {name: pa.array(values, typed.get(name)) for name, values in columns.items()}
    if "v" in arrays:
        arrays["v"] = pa.FixedShapeTensorArray.from_numpy_ndarray(np.array(columns["v"], "<f4"))
    pq.write_table(pa.table(arrays), folder / "rows.parquet")
    return folder


def _jsonl(folder: Path, rows: list[dict[str, Any]]) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _embedded(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The records point at their images."""
    for row in rows:
        image = row.pop("image") or {"bytes": _image(99), "path": "99.jpg"}
        (folder / image["path"]).write_bytes(image["bytes"])
        row["image"] = image["path"]
        row.pop("raw")
        row.pop("v")
    return _jsonl(folder, rows)


def _csv(folder: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [f"{row['id']},{row['n']},{row['x']},{str(row['b']).lower()},{row['t']},{row['u'] or ''}" for row in rows]
    (folder / "rows.csv").write_text("\n".join(["id,n,x,b,t,u", *lines, ""]))
    return folder


def _files(folder: Path, rows: list[dict[str, Any]]) -> Path:
    for i, row in enumerate(rows):
        (folder / f"{row['id']}.jpg").write_bytes(_image(i))
        (folder / f"{row['id']}.cls").write_text(str(row["n"]))
        (folder / f"{row['id']}.json").write_text(json.dumps({"t": row["t"], "x": row["x"]}))
    return folder


SOURCES: dict[str, tuple[Callable[..., Path], Callable[[], list[dict[str, Any]]], dict[str, Any]]] = {
    "files": (_files, _rows, {}),
    "jsonl": (_jsonl, _rows, KEY),
    "embed": (_embedded, _media_rows, {**KEY, "source": "jsonl", "embed_options": {"embed": "image"}}),
    "parquet": (_parquet, _media_rows, KEY),
    "table": (_parquet, _rows, KEY),
    "csv": (_csv, _rows, KEY),
}


@pytest.fixture
def packed(tmp_path: Path, pack: Any) -> Callable[..., Path]:
    """``packed("parquet", "wds", "w", change)``: the source in one format; ``change`` edits the rows before."""

    def make(source: str, format_: str, name: str, change: Change = lambda _: None) -> Path:
        write, rows_of, words = SOURCES[source]
        rows = rows_of()
        change(rows)
        folder = tmp_path / f"in-{name}"
        folder.mkdir()
        made: Path = pack(write(folder, rows), format_, name, shard_samples=4 if format_ == "wds" else 3, **words)
        return made

    return make


@pytest.mark.parametrize("source", SOURCES)
def test_packs_and_conversions_of_one_source_are_equal(source: str, packed: Any, pack: Any, against: Any) -> None:
    wds, mds = packed(source, "wds", "w"), packed(source, "mds", "m")
    made = {"w": wds, "m": mds, "wm": pack(wds, "mds", "wm"), "mw": pack(mds, "wds", "mw")}
    # What a dataset was converted from has a format; another dataset of that format is no source of it.
    others = {("wm", "mw"), ("mw", "wm")}
    for one, other in permutations(made, 2):
        seen = against(made[one], made[other])
        if (one, other) in others:
            assert ("changed-source", None) in seen.seen, (one, other)
        else:
            assert seen.seen == [], (one, other)
            assert f"{NUM} samples" in seen.proved, (one, other)


CHANGES: dict[str, tuple[str, Change]] = {
    "int": ("parquet", lambda rows: rows[2].update(n=99)),
    "float": ("parquet", lambda rows: rows[2].update(x=0.25)),
    "bool": ("parquet", lambda rows: rows[2].update(b=False)),
    "text": ("parquet", lambda rows: rows[2].update(t="täxt 2 ")),
    "null": ("parquet", lambda rows: rows[2].update(u=None)),
    "list": ("parquet", lambda rows: rows[2].update(m=[2, 1])),
    "bytes": ("parquet", lambda rows: rows[2].update(raw=b"\2\0\376")),
    "no-bytes": ("parquet", lambda rows: rows[2].update(raw=None)),
    "array": ("parquet", lambda rows: rows[2].update(v=[2, 0.25])),
    "image": ("parquet", lambda rows: rows[2]["image"].update(bytes=_image(3))),
    "no-image": ("parquet", lambda rows: rows[2].update(image=None)),
    "embedded": ("embed", lambda rows: rows[2]["image"].update(bytes=_image(3))),
    "beside": ("embed", lambda rows: rows[2].update(t="x")),
    "json": ("files", lambda rows: rows[2].update(x=0.25)),
    "record": ("jsonl", lambda rows: rows[2].update(m=[2, 1])),
    "row": ("csv", lambda rows: rows[2].update(n=99)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_changed_value_is_found_in_either_direction(name: str, packed: Any, against: Any) -> None:
    source, change = CHANGES[name]
    assert against(packed(source, "wds", "w"), packed(source, "mds", "m", change)).seen == [("changed-sample", "r2")]
    assert against(packed(source, "mds", "m2"), packed(source, "wds", "w2", change)).seen == [("changed-sample", "r2")]


def test_a_pack_and_a_conversion_back_differ_in_what_was_changed(packed: Any, pack: Any, against: Any) -> None:
    """Both are tars, whose records were written by two programs."""
    other = pack(packed("parquet", "mds", "m", lambda rows: rows[2].update(t="x")), "wds", "mw")
    assert against(packed("parquet", "wds", "w"), other).seen == [("changed-sample", "r2")]


def test_merged_parts_are_compared_as_the_columns_of_all(tmp_path: Path, packed: Any, pack: Any, against: Any) -> None:
    merged = {}
    for format_ in ("wds", "mds"):
        first = packed("parquet", format_, f"{format_}-1", lambda rows: rows.__delitem__(slice(4, None)))
        second = packed("parquet", format_, f"{format_}-2", lambda rows: rows.__delitem__(slice(None, 6)))
        merged[format_] = tmp_path / format_
        merge([str(first), str(second)], str(merged[format_]))
    converted = pack(merged["wds"], "mds", "converted")
    for one, other in permutations([*merged.values(), converted], 2):
        assert against(one, other).seen == []


def test_what_is_no_number_is_equal_in_both(tmp_path: Path, pack: Any, against: Any) -> None:
    table = pa.table({"id": ["a", "b", "c"], "x": pa.array([float("nan"), float("inf"), 1.5])})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in/rows.parquet")
    wds, mds = (pack(tmp_path / "in", format_, format_, **KEY) for format_ in ("wds", "mds"))
    assert against(wds, mds).seen == [] and against(mds, wds).seen == []


def test_tars_of_others_are_read_by_the_rule_of_conversion(tmp_path: Path, packed: Any, tar_of: Any, against: Any) -> None:
    """Without a manifest the members are those that the columns of MDS become."""
    mds = packed("parquet", "mds", "m")
    (tmp_path / "tars").mkdir()
    members: list[tuple[str, bytes]] = []
    for i, row in enumerate(_media_rows()):
        array = io.BytesIO()
        np.save(array, np.array(row.pop("v"), "<f4"))
        image, raw = row.pop("image"), row.pop("raw")
        members += [(f"r{i}.image", image["bytes"])] if image else []
        members += [(f"r{i}.raw", raw)] if raw else []
        members += [(f"r{i}.v.npy", array.getvalue()), (f"r{i}.json", json.dumps(row).encode())]
    (tmp_path / "tars/x.tar").write_bytes(tar_of(members))
    assert against(mds, tmp_path / "tars").seen == []
    (tmp_path / "tars/x.tar").write_bytes(tar_of([*members[:-1], ("r8.json", b'{"id":"r8"}')]))
    assert against(mds, tmp_path / "tars").seen == [("changed-sample", "r8")]


def test_the_paths_of_embedded_files_are_said_not_to_be_compared(packed: Any, against: Any) -> None:
    wds, mds = packed("embed", "wds", "w"), packed("embed", "mds", "m")
    assert "the paths in image, in whose place MDS has the files" in against(wds, mds).not_proved
    assert "the paths" not in against(wds, wds).not_proved


def test_a_record_whose_members_nothing_names_is_refused(packed: Any, pack: Any, against: Any) -> None:
    """Resharded tars know no more which members were embedded: every single sample would differ."""
    mds, again = packed("embed", "mds", "m"), pack(packed("embed", "wds", "w"), "wds", "ww")
    for one, other in ((mds, again), (again, mds)):
        with pytest.raises(UsageError, match="expected two datasets with the same fields, got"):
            against(one, other)
