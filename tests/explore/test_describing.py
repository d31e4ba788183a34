"""What a dataset is said to be is what was packed; stops a summary that is made up where nothing was recorded."""

import json

import pytest

from shardtools.datasets import open_dataset
from shardtools.explore.describe import describe
from shardtools.verify import verify


@pytest.fixture
def published(build, rows, tmp_path):
    def make(shard_format):
        (tmp_path / "src").mkdir(exist_ok=True)
        columns = {"json": [b"{}", b"[]", b"1", None], "txt": [b"a", b"b", b"c", b"d"]}
        source = rows([b"a", b"b", b"c", b"d", b"bad"], {n: [*v, b"x"] for n, v in columns.items()}, {"json": "json", "txt": "str"})
        result = build(tmp_path / "src", tmp_path / "out", shard_format, source=source, shard_samples=3, max_bad="1")
        return tmp_path / "out", result.manifest

    return make


def test_a_published_dataset(published):
    folder, manifest = published("wds")
    found = describe(open_dataset(str(folder)))
    assert (found.format_name, found.is_published, found.num_shards, found.num_samples) == ("wds", True, 2, 4)
    assert (found.num_bytes, found.smallest_shard_bytes, found.largest_shard_bytes) == (20480, 10240, 10240)
    assert found.mean_sample_bytes == 5120
    assert [(field.name, field.encoding, field.num_samples) for field in found.fields] == [("json", "json", 3), ("txt", "str", 4)]
    assert found.field_sets == {"json,txt": 3, "txt": 1}
    assert found.ledger == {"read": 5, "written": 4, "rejected": 1, "filtered": 0, "rejects": {"bad-row": 1}}
    assert found.plan_digest == manifest.plan_digest
    rows = dict(found.rows())
    assert rows["samples"] == "4"
    assert rows["field json"] == "json, in 3 of 4 samples"
    assert rows["field txt"] == "str"
    assert rows["ledger"] == "5 read = 4 written + 1 rejected + 0 filtered (1 bad-row)"
    assert json.loads(json.dumps(found.as_json()))["recipe"]["format"]["name"] == "wds"


def test_a_published_mds_dataset_has_a_key_column(published):
    found = describe(open_dataset(str(published("mds")[0])))
    assert [(field.name, field.encoding, field.num_samples) for field in found.fields] == [
        ("json", "json", 4),
        ("key", "str", 4),
        ("txt", "str", 4),
    ]


def test_a_foreign_mds_dataset_is_described_by_its_index(published):
    folder, _ = published("mds")
    (folder / "shardtools.manifest").unlink()
    found = describe(open_dataset(str(folder)))
    assert (found.is_published, found.num_samples, found.field_sets) == (False, 4, {"json,key,txt": 4})
    assert (found.plan_digest, found.ledger, found.recipe) == (None, None, None)
    assert dict(found.rows())["format"] == "mds, not published by shardtools (no manifest)"


def test_of_foreign_tars_only_the_first_samples_are_looked_at(tmp_path, ustar):
    for n in range(2):
        (tmp_path / f"{n}.tar").write_bytes(ustar([(f"{n}-{i}.{field}", b"1") for i in range(700) for field in ("cls", "jpg")]))
    found = describe(open_dataset(str(tmp_path)))
    assert found.num_samples is None
    assert found.mean_sample_bytes is None
    assert found.field_sets == {"cls,jpg": 1000}
    assert [(field.name, field.encoding) for field in found.fields] == [("cls", "int"), ("jpg", "jpeg")]
    rows = dict(found.rows())
    assert rows["samples"] == "not recorded"
    assert rows["field jpg"] == "jpeg, in 1,000 of the first 1,000 samples"


def test_a_missing_shard_does_not_stop_the_description(published):
    folder, _ = published("wds")
    (folder / "train-000001.tar").unlink()
    assert describe(open_dataset(str(folder))).num_bytes == 10240


def test_columns_with_commas_in_their_names_are_counted_apart(build, rows, tmp_path):
    (tmp_path / "src").mkdir()
    columns = {"a,b": [b"1", b"2"], "a%2Cb": [b"3", b"4"], "c": [b"5", b"6"]}
    source = rows([b"x", b"y"], columns, dict.fromkeys(columns, "bytes"))
    build(tmp_path / "src", tmp_path / "out", "mds", source=source)
    dataset = open_dataset(str(tmp_path / "out"))
    found = describe(dataset)
    assert {field.name: field.num_samples for field in found.fields} == {"a,b": 2, "a%2Cb": 2, "c": 2, "key": 2}
    assert found.field_sets == {"a%252Cb,a%2Cb,c,key": 2}
    assert verify(str(tmp_path / "out")).findings == ()
