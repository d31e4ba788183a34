"""The same records in every kind of source; stops ``--where`` and ``--embed`` from meaning one thing here and another there.

What is kept is worked out from the records by Python, and read back with tarfile.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from step_orders import pack, tar_samples

from shardtools import partitions as partitions_module
from shardtools.verify import verify
from shardtools.verify.options import VerifyOptions

ROWS: list[dict[str, Any]] = [
    {
        "image": f"img/{i:03d}.jpg",
        "n": i,
        "lang": ("en", "de", "日本")[i % 3],
        "score": i / 8,
        "good": i % 2 == 0,
        "meta": {"q": {"deep": i % 5}},
    }
    for i in range(120)
]
MEDIA = {f"img/{i:03d}.jpg": b"\xff\xd8\xff" + bytes([i]) * (i * 7 % 300) for i in range(120)}
WHERES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "lang = 'de' and n >= 50": lambda row: row["lang"] == "de" and row["n"] >= 50,
    "lang in ('日本', 'xx') or score > 14.5": lambda row: row["lang"] == "日本" or row["score"] > 14.5,
    "good = true and not (n < 100)": lambda row: row["good"] and row["n"] >= 100,
    "meta.q.deep = 3 and lang contains 'e'": lambda row: row["meta"]["q"]["deep"] == 3 and "e" in row["lang"],
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    root = tmp_path_factory.mktemp("sources")
    for name, data in MEDIA.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    (root / "d.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in ROWS))
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), root / "d.parquet", row_group_size=50)
    flat = [{**row, "meta": json.dumps(row["meta"])} for row in ROWS]
    pa.csv.write_csv(pa.Table.from_pylist(flat), root / "d.csv")
    pack(root / "d.jsonl", root / "wds")
    pack(root / "d.jsonl", root / "mds", "mds")
    files = root / "files"
    files.mkdir()
    for row in ROWS:
        (files / f"{row['n']:03d}.json").write_text(json.dumps(row))
        (files / f"{row['n']:03d}.jpg").write_bytes(MEDIA[row["image"]])
    return {name: root / place for name, place in (("jsonl", "d.jsonl"), ("parquet", "d.parquet"), ("csv", "d.csv"))} | {
        name: root / name for name in ("wds", "mds", "files")
    }


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("source", ["jsonl", "parquet", "csv", "wds", "mds", "files"])
def test_every_source_keeps_the_same_records(source: str, where: str, sources: dict[str, Path], tmp_path: Path) -> None:
    if source == "csv" and "meta." in where:
        pytest.skip("cells of CSV are no objects")
    expected = [row["n"] for row in ROWS if WHERES[where](row)]
    result = pack(sources[source], tmp_path / "out", where=where)
    assert [json.loads(sample["json"])["n"] for sample in tar_samples(tmp_path / "out").values()] == expected
    assert dict(result.manifest.ledger.filters) == {"where": 120 - len(expected)}
    assert not verify(str(tmp_path / "out"), VerifyOptions(against=(str(sources[source]),))).findings


@pytest.mark.parametrize("to", ["wds", "mds"])
@pytest.mark.parametrize("source", ["jsonl", "parquet", "csv"])
def test_every_source_of_records_takes_media_in(
    source: str, to: str, sources: dict[str, Path], tmp_path: Path, read_mds_raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 2048)
    result = pack(sources[source], tmp_path / "out", to, embed="image", where="n < 60", shard_size="10KiB")
    assert len(result.survey.partitions) > 2 or source == "csv", "that is cut by the MiB"
    expected = [MEDIA[row["image"]] for row in ROWS[:60]]
    if to == "wds":
        assert [sample["jpg"] for sample in tar_samples(tmp_path / "out").values()] == expected
    else:
        assert [row["image"] for row in read_mds_raw(tmp_path / "out")] == expected
    assert not verify(str(tmp_path / "out"), VerifyOptions(against=(str(sources[source]),))).findings
