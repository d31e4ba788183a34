"""``--where`` over real inputs; stops a sample that is kept or left out against what its record says, and one that nobody counts.

What should be kept is worked out from the records by Python.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from step_orders import pack, tar_samples

from shardtools import partitions as partitions_module
from shardtools.engines.processes import Processes
from shardtools.errors import BadSampleError, DuplicateKeyError, ShardtoolsError, UsageError
from shardtools.verify import verify
from shardtools.verify.options import VerifyOptions

RECORDS = [
    {
        "id": i,
        "lang": ("en", "de", None, "日本")[i % 4],
        "meta": {"q": i / 100, "tags": ["a"] * (i % 3)} if i % 5 else None,
        "text": f"text {i} " * (i % 7),
    }
    for i in range(400)
]
BIG = 2**64


@pytest.fixture
def lines(tree: Any) -> Path:
    return Path(tree({"d.jsonl": b"".join(json.dumps(one).encode() + b"\n" for one in RECORDS)})) / "d.jsonl"


def kept_ids(folder: Path) -> list[int]:
    return [json.loads(fields["json"])["id"] for fields in tar_samples(folder).values()]


WHERES = {
    "lang = 'en'": lambda one: one["lang"] == "en",
    "lang != 'en'": lambda one: one["lang"] not in ("en", None),
    "not lang = 'en'": lambda one: one["lang"] != "en",
    "lang is null or id >= 390": lambda one: one["lang"] is None or one["id"] >= 390,
    "meta.q > 3.5 and meta.tags contains 'a'": lambda one: (
        one["meta"] is not None and one["meta"]["q"] > 3.5 and "a" in one["meta"]["tags"]
    ),
    "lang in ('日本', 'de') and text startswith 'text 3'": lambda one: one["lang"] in ("日本", "de") and one["text"].startswith("text 3"),
    "meta = 3 or meta.q is null": lambda one: one["meta"] is None,
}


@pytest.mark.parametrize("where", WHERES)
def test_records_are_kept_by_what_they_say(where: str, lines: Path, tmp_path: Path, read_mds_raw: Any) -> None:
    expected = [one["id"] for one in RECORDS if WHERES[where](one)]
    result = pack(lines, tmp_path / "wds", where=where)
    assert kept_ids(tmp_path / "wds") == expected
    ledger = result.manifest.ledger
    assert (ledger.num_read, ledger.num_written, ledger.num_filtered) == (400, len(expected), 400 - len(expected))
    assert dict(ledger.filters) == {"where": 400 - len(expected)}
    pack(lines, tmp_path / "mds", "mds", where=where)
    assert [json.loads(row["meta"]) for row in read_mds_raw(tmp_path / "mds")] == [RECORDS[i]["meta"] for i in expected]
    for kind in ("wds", "mds"):
        assert not verify(str(tmp_path / kind), VerifyOptions(against=(str(lines),))).findings


def test_a_field_that_no_record_has_is_refused_with_those_there_are(lines: Path, tmp_path: Path, one_sentence: Any) -> None:
    with pytest.raises(UsageError) as caught:
        pack(lines, tmp_path / "out", where="lang = 'en' or meta.nothing is null")
    assert "expected a field 'meta.nothing' in the first records, got id, key, lang, meta, text" in one_sentence(caught.value)


def test_the_key_is_a_field_where_records_have_none_of_that_name(tree: Any, tmp_path: Path) -> None:
    records = [{"n": 1}, {"n": 2, "key": "mine"}, {"n": 3, "key": None}]
    folder = tree({"d.jsonl": b"".join(json.dumps(one).encode() + b"\n" for one in records)})
    pack(folder, tmp_path / "out", where="key startswith 'd/0' or key = 'mine'")
    assert [json.loads(one["json"])["n"] for one in tar_samples(tmp_path / "out").values()] == [1, 2, 3]
    pack(folder, tmp_path / "second", where="key = 'd/000000000000'")
    assert [json.loads(one["json"])["n"] for one in tar_samples(tmp_path / "second").values()] == [1]


def test_whole_numbers_beyond_64_bits_are_exact(tree: Any, tmp_path: Path) -> None:
    folder = tree({"d.jsonl": b"".join(b'{"id": %d, "in": {"n": %d}}\n' % (BIG + i, BIG * 2 + i) for i in range(3))})
    pack(folder, tmp_path / "out", where=f"id = {BIG + 1} or in.n = {2 * BIG + 2}".replace("in.n", "`in.n`"))
    assert [json.loads(one["json"])["id"] - BIG for one in tar_samples(tmp_path / "out").values()] == [1, 2]


def test_what_cannot_be_compared_is_a_bad_sample(lines: Path, tmp_path: Path, one_sentence: Any) -> None:
    with lines.open("ab") as file:
        file.write(b'{"id": "x7", "lang": "en", "meta": null, "text": ""}\n')
    where = "lang = 'en' and id < 10"
    with pytest.raises(BadSampleError) as caught:
        pack(lines, tmp_path / "strict", where=where)
    assert "d.jsonl, line 401" in one_sentence(caught.value)
    assert "expected a number in the field 'id', to compare with 10, got str 'x7'" in str(caught.value)
    ledger = pack(lines, tmp_path / "out", where=where, max_bad="1").manifest.ledger
    assert dict(ledger.rejects) == {"wrong-type": 1}
    assert (ledger.num_read, ledger.num_written, ledger.num_filtered) == (401, 3, 397)
    assert not verify(str(tmp_path / "out"), VerifyOptions(against=(str(lines),))).findings


def test_bytes_do_not_depend_on_workers_or_spelling(lines: Path, tmp_path: Path, digests: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 4096)
    monkeypatch.chdir(tmp_path)
    pack(lines, tmp_path / "one", where="lang='en' AND (id>20)", shard_size="20KiB")
    result = pack(lines, tmp_path / "two", where='lang == "en" and id > 20.0', shard_size="20KiB", engine=Processes(2))
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(result.survey.partitions) > 3
    assert pack(lines, tmp_path / "one", where="( lang = 'en' and id > 20 )", shard_size="20KiB").already_complete
    with pytest.raises(UsageError, match=r"steps"):
        pack(lines, tmp_path / "one", where="lang = 'de'", shard_size="20KiB")


def test_of_keys_that_repeat_those_that_are_kept_are_named(tree: Any, tmp_path: Path) -> None:
    source = tree({"d.jsonl": b'{"key":"a","n":0}\n{"key":"a","n":1}\n{"key":"b","n":1}\n{"key":"a","n":1}\n'})
    with pytest.raises(DuplicateKeyError, match=r"got 'a' from d\.jsonl, line 2 \(byte 18\) and from d\.jsonl, line 4 \(byte 54\)"):
        pack(source, tmp_path / "out", where="n = 1", source__key="key")


def test_nothing_is_published_of_nothing(lines: Path, tmp_path: Path, one_sentence: Any) -> None:
    with pytest.raises(ShardtoolsError, match="at least one sample") as caught:
        pack(lines, tmp_path / "out", where="id < 0")
    one_sentence(caught.value)
    assert not list(tmp_path.glob("out/*.tar"))


def test_parts_are_sized_by_what_is_kept(tree: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in twenty is kept: cut as if all were, each part would end in a shard that is nearly empty."""
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 4096)
    rows = (json.dumps({"n": i % 20, "pad": "x" * 1000}).encode() + b"\n" for i in range(16000))
    folder = tree({"d.jsonl": b"".join(rows)})
    result = pack(folder, tmp_path / "out", where="n = 3", shard_size="100KiB")
    sizes = [shard.num_bytes for shard in result.manifest.shards]
    assert result.manifest.ledger.num_written == 800
    assert len(sizes) <= 16
    assert sum(sizes) / len(sizes) > 70_000


def pairs(tree: Any) -> Path:
    files: dict[str | bytes, bytes] = {}
    for i in range(60):
        folder = ("cats", "dogs")[i % 2]
        files[f"{folder}/{i:03d}.jpg"] = b"\xff\xd8\xff" + bytes([i])
        files[f"{folder}/{i:03d}.json"] = json.dumps({"id": i, "size": {"w": i * 10}}).encode()
        files[f"{folder}/{i:03d}.txt"] = f"ein Bild {i}".encode()
    return Path(tree(files))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id < 7", range(7)),
        ("size.w >= 580", (58, 59)),
        ("path startswith 'dogs/' and id < 6", (1, 3, 5)),
        ("key = 'cats/004'", (4,)),
        ("cls = 1 and id in (1, 2, 3)", (1, 3)),
        ("txt contains 'Bild 5' and not cls = 0", (5, 51, 53, 55, 57, 59)),
    ],
)
def test_files_are_kept_by_what_lies_beside_them(where: str, expected: Any, tree: Any, tmp_path: Path) -> None:
    source = pairs(tree)
    result = pack(source, tmp_path / "out", where=where, source__label_from="dir")
    kept = tar_samples(tmp_path / "out")
    assert sorted(json.loads(one["json"])["id"] for one in kept.values()) == sorted(expected)
    assert all(one["jpg"][3] == json.loads(one["json"])["id"] for one in kept.values())
    assert dict(result.manifest.ledger.filters) == {"where": 60 - len(expected)}
    pack(source, tmp_path / "mds", "mds", where=where, source__label_from="dir")
    for kind in ("out", "mds"):
        assert not verify(str(tmp_path / kind), VerifyOptions(against=(str(source),))).findings


def test_files_whose_json_is_none_are_bad_samples(tree: Any, tmp_path: Path, one_sentence: Any) -> None:
    source = pairs(tree)
    (source / "dogs/031.json").write_bytes(b'{"id": 31')
    with pytest.raises(BadSampleError, match=r"dogs/031\.json: expected valid JSON") as caught:
        pack(source, tmp_path / "out", where="id < 40")
    one_sentence(caught.value)
    ledger = pack(source, tmp_path / "out", where="id < 40", max_bad="1").manifest.ledger
    assert (ledger.num_written, ledger.num_filtered, dict(ledger.rejects)) == (39, 20, {"invalid-json": 1})


@pytest.mark.parametrize("kind", ["wds", "mds"])
def test_a_file_of_another_kind_in_the_field_of_records_is_no_record(tree: Any, tmp_path: Path, kind: str) -> None:
    # Lone files of mixed kinds are one column in MDS.
    files = {"a.json": b'{"n": 1}', "b.txt": b"no JSON at all", "c.txt": b'{"n": 1}', "d.json": b'{"n": 2}', "e.jpg": b"\xff\xd8\xff"}
    ledger = pack(tree(files), tmp_path / "out", kind, where="n = 1").manifest.ledger
    assert (ledger.num_written, ledger.num_filtered) == (1, 4)


def test_the_record_may_be_a_field_of_another_name(tree: Any, tmp_path: Path) -> None:
    result = pack(pairs(tree), tmp_path / "out", where="id < 7", source__fields="image=jpg,meta=json")
    assert [sorted(one) for one in tar_samples(tmp_path / "out").values()] == [["image", "meta"]] * 7
    assert result.survey.skipped == {".txt files": 60}
    (tmp_path / "src/dogs/031.json").write_bytes(b"[")
    with pytest.raises(BadSampleError, match=r"dogs/031\.json: expected valid JSON"):
        pack(tmp_path / "src", tmp_path / "bad", where="id < 7", source__fields="image=jpg,meta=json")


def test_a_field_that_no_file_has_is_refused_with_those_there_are(tree: Any, tmp_path: Path, one_sentence: Any) -> None:
    with pytest.raises(UsageError, match="expected a field 'width' in the first records, got id, key, path, size, txt") as caught:
        pack(pairs(tree), tmp_path / "out", where="width > 3")
    one_sentence(caught.value)
    assert not (tmp_path / "out").exists()
