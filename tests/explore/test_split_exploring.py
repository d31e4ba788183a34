"""What a dataset with splits is, and the files of one of them. Stops an extract that mixes test files into the training set."""

import json
from pathlib import Path

import pytest
from split_datasets import expected_split, pack_splits

from shardtools.datasets import open_dataset
from shardtools.explore.describe import describe
from shardtools.explore.extract import extract
from shardtools.explore.show import head

KEYS = [f"d/{i:02d}" for i in range(40)]
IN = {split: [key for key in KEYS if expected_split(key) == split] for split in ("train", "val", "test")}


@pytest.fixture
def source(tree) -> Path:
    return tree({f"{key}.txt": key.encode() for key in KEYS} | {f"{key}.bin": b"1" for key in IN["val"]})


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_a_description_counts_each_split(source, tmp_path, to):
    manifest = pack_splits(source, tmp_path / "out", to)
    description = describe(open_dataset(str(tmp_path / "out")))
    content = json.loads(json.dumps(description.as_json()))
    assert {split: counts["samples"] for split, counts in content["splits"].items()} == {split: len(keys) for split, keys in IN.items()}
    assert [counts["shards"] for counts in content["splits"].values()] == [6, 2, 3]
    assert sum(counts["bytes"] for counts in content["splits"].values()) == content["bytes"]
    assert [row[0] for row in description.rows() if row[0].startswith("split ")] == ["split train", "split val", "split test"]
    assert manifest.samples_by_split == {split: len(keys) for split, keys in IN.items()}


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_a_split_is_described_by_itself(source, tmp_path, to):
    pack_splits(source, tmp_path / "out", to)
    dataset = open_dataset(str(tmp_path / "out"), "val")
    description = describe(dataset)
    content = description.as_json()
    assert (content["split"], content["samples"], content["shards"]) == ("val", len(IN["val"]), 2)
    assert "splits" not in content
    assert sum(description.field_sets.values()) == len(IN["val"])
    assert dict(description.rows())["dataset"].endswith("/out, split val")
    assert "ledger of all splits" in dict(description.rows())
    assert [sample.key for sample in head(dataset, 100)] == IN["val"]


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_the_files_of_one_split_come_back(source, tmp_path, to):
    pack_splits(source, tmp_path / "out", to)
    done = extract(open_dataset(str(tmp_path / "out"), "test"), str(tmp_path / "files"))
    assert done.num_samples == len(IN["test"])
    found = {str(path.relative_to(tmp_path / "files")): path.read_bytes() for path in (tmp_path / "files").rglob("*.txt")}
    assert found == {f"{key}.txt": key.encode() for key in IN["test"]}
