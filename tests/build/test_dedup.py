"""Stops duplicates that stay, samples that go although nothing repeats them, and a choice of the first that depends on who looked."""

import json
import random

import numpy as np
import pytest
from scattering import keys_in, make_records, pack, write_records
from shuffled_engine import Shuffled

from shardtools import digests as digests_module
from shardtools import partitions as partitions_module
from shardtools.build.stages.content import ContentDigests
from shardtools.engines.processes import Processes
from shardtools.errors import DuplicateKeyError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.plan import Recipe, ShardLimit
from shardtools.sample import Batch, Field
from shardtools.selection import Selection
from shardtools.sources.jsonl import Jsonl

BY_KEY, BY_CONTENT = Selection(dedup="key"), Selection(dedup="content")


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


def with_repeats(count: int, by: str) -> list[dict]:
    """Records of which about a third repeat an earlier one's key, or all but its key."""
    numbers, records = random.Random(5), make_records(count)
    for i in range(1, count):
        if numbers.random() < 0.3:
            earlier = records[numbers.randrange(i)]
            records[i] = {**records[i], "id": earlier["id"]} if by == "key" else {**earlier, "id": records[i]["id"]}
    return records


def firsts(records: list[dict], by: str) -> list[int]:
    """The place of each record that repeats no earlier one, by comparing the records themselves."""
    seen, kept = set(), []
    for i, record in enumerate(records):
        content = record["id"] if by == "key" else json.dumps({name: value for name, value in record.items() if name != "id"})
        if content not in seen:
            kept.append(i)
        seen.add(content)
    return kept


def stored_numbers(folder, read_mds_raw) -> list[int]:
    return [int.from_bytes(row["n"], "little") for row in read_mds_raw(folder)]


def test_of_samples_with_one_key_the_first_stays(tmp_path, read_mds_raw):
    records = with_repeats(900, "key")
    result = pack(write_records(tmp_path / "src", records), tmp_path / "out", Mds(), selection=BY_KEY)
    kept = firsts(records, "key")
    assert stored_numbers(tmp_path / "out", read_mds_raw) == kept and len(kept) < 750
    assert result.manifest.ledger.as_json() == {
        "read": 900,
        "written": len(kept),
        "rejected": 0,
        "filtered": 900 - len(kept),
        "rejects": {},
        "filters": {"dedup": 900 - len(kept)},
    }


@pytest.mark.parametrize("format_", [Wds(), Mds()], ids=["wds", "mds"])
def test_of_samples_with_one_content_the_first_stays_whatever_their_keys(tmp_path, format_, read_mds_raw):
    records = with_repeats(900, "content")
    result = pack(write_records(tmp_path / "src", records), tmp_path / "out", format_, selection=BY_CONTENT)
    wanted = [records[i]["id"] for i in firsts(records, "content")]
    keys = [row["id"].decode() for row in read_mds_raw(tmp_path / "out")] if format_ == Mds() else keys_in(result, tmp_path / "out")
    assert keys == wanted and len(wanted) < 750


def test_a_repeated_key_stops_the_run_where_only_content_is_looked_at(tmp_path):
    records = make_records(100)
    records[60]["id"] = records[3]["id"]
    with pytest.raises(DuplicateKeyError, match="k0000003"):
        pack(write_records(tmp_path / "src", records), tmp_path / "out", selection=BY_CONTENT)


def test_every_engine_drops_the_same(tmp_path, digests):
    source = write_records(tmp_path / "src", with_repeats(900, "key"))
    for i, engine in enumerate([None, Shuffled(3), Processes(2)]):
        pack(source, tmp_path / str(i), selection=BY_KEY, engine=engine)
    assert digests(tmp_path / "1") == digests(tmp_path / "0") == digests(tmp_path / "2")


def test_little_memory_drops_the_same(tmp_path, digests, monkeypatch):
    """Digests that memory cannot hold go through a file, in slices of the digest space."""
    source = write_records(tmp_path / "src", with_repeats(900, "key"))
    pack(source, tmp_path / "one", selection=BY_KEY)
    monkeypatch.setattr(digests_module.DigestTable.__init__, "__defaults__", (16, 1000))
    monkeypatch.setattr(digests_module, "_BUCKET_RECORDS", 50)
    pack(source, tmp_path / "two", selection=BY_KEY)
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_what_all_repeat_is_there_once(tmp_path):
    source = write_records(tmp_path / "src", [{"id": "same", "n": i} for i in range(500)])
    result = pack(source, tmp_path / "out", selection=BY_KEY)
    assert keys_in(result, tmp_path / "out") == ["same"]
    assert result.manifest.ledger.filters == {"dedup": 499}


def test_bad_samples_are_counted_as_bad(tmp_path):
    source = write_records(tmp_path / "src", with_repeats(900, "key"))
    (source / "2.jsonl").write_bytes((source / "2.jsonl").read_bytes() + b"bad\n")
    ledger = pack(source, tmp_path / "out", selection=BY_KEY, max_bad="1").manifest.ledger
    assert (ledger.num_read, ledger.num_rejected) == (901, 1)


def test_dropped_samples_stay_dropped_when_shuffled(tmp_path):
    records = with_repeats(900, "key")
    result = pack(write_records(tmp_path / "src", records), tmp_path / "out", seed=3, selection=BY_KEY)
    assert sorted(keys_in(result, tmp_path / "out")) == sorted(records[i]["id"] for i in firsts(records, "key"))


# The digest of content.


def content_digests(fields: list[Field], columns: dict, transforms: tuple = (), format_=Mds()) -> list[bytes]:
    recipe = Recipe(Jsonl(key="id"), format_, tuple(fields), ShardLimit(1 << 20), transforms=transforms)
    count = len(next(iter(columns.values())))
    data = ContentDigests(recipe).of(Batch([b"%d" % i for i in range(count)], columns, str))
    return [data[i : i + 16] for i in range(0, len(data), 16)]


SAME = {
    "floats": (Field("x", "float"), [1, 1.0]),
    "objects whose fields are in another order": (Field("x", "json"), [{"a": 1, "b": [2]}, {"b": [2], "a": 1}]),
    "text and its bytes": (Field("x", "str"), ["é", "é".encode()]),
    "arrays of another layout in memory": (
        Field("x", "ndarray"),
        [np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))],
    ),
}
OTHER = {
    "whole numbers": (Field("x", "int"), [2**53, 2**53 + 1]),
    "true and one": (Field("x", "json"), [True, 1]),
    "a number and its text": (Field("x", "json"), [1, "1"]),
    "a list and its text": (Field("x", "json"), [[1], "[1]"]),
    "null in JSON and its text": (Field("x", "json"), [b"null", "null"]),
    "nothing and an empty text": (Field("x", "str", optional=True), [None, ""]),
    "arrays of other types": (Field("x", "ndarray"), [np.array([1, 2], "<i4"), np.array([1, 2], "<i8")]),
    "arrays of other shapes": (Field("x", "ndarray"), [np.zeros((2, 3)), np.zeros((3, 2))]),
    "inner fields that are called as the key": (Field("x", "json"), [{"id": 1}, {"id": 2}]),
}


@pytest.mark.parametrize("name", SAME)
def test_these_are_one_content(name):
    field, values = SAME[name]
    assert len(set(content_digests([field], {"x": values}))) == 1


@pytest.mark.parametrize("name", OTHER)
def test_these_are_other_content(name):
    field, values = OTHER[name]
    assert len(set(content_digests([field], {"x": values}))) == 2


def test_what_moves_from_one_field_to_the_next_is_other_content():
    fields = [Field("a", "str"), Field("b", "str")]
    assert len(set(content_digests(fields, {"a": ["xy", "x", ""], "b": ["z", "yz", "xyz"]}))) == 3


@pytest.mark.parametrize(
    ("records", "num_contents"),
    [
        ([b'{"id": 1, "a": 2}', b'{"a":2,"id":2}'], 1),
        ([b'{"a": 36893488147419103232}', b'{"a": 36893488147419103233}'], 2),
        ([b'{"id": 1, "a": {"id": 1}}', b'{"id": 1, "a": {"id": 2}}'], 2),
        ([b'{"id": 1', b'{"id": 2'], 2),
        ([b"1", b'"1"'], 2),
    ],
    ids=["another key", "large whole numbers", "inner fields called as the key", "no JSON", "a number and its text"],
)
def test_whole_records_are_one_content_if_nothing_but_their_key_differs(records, num_contents):
    found = content_digests([Field("json", "json")], {"json": records}, format_=Wds())
    assert len(set(found)) == num_contents


def test_the_key_is_no_content():
    fields = [Field("id", "str"), Field("x", "int")]
    assert len(set(content_digests(fields, {"id": ["a", "b"], "x": [1, 1]}))) == 1
