"""A split is opened by its name, whoever made the shards. Stops an evaluation that reads training samples."""

import json
import shutil
from pathlib import Path

import pytest
from split_datasets import expected_split, pack_splits

from shardtools.datasets import open_dataset
from shardtools.errors import UsageError
from shardtools.manifest import Manifest

KEYS = [f"d/{i:02d}" for i in range(40)]
IN = {split: [key for key in KEYS if expected_split(key) == split] for split in ("train", "val", "test")}


@pytest.fixture
def source(tree) -> Path:
    assert all(len(keys) > 3 for keys in IN.values())
    return tree({f"{key}.txt": key.encode() for key in KEYS})


def keys_in(dataset) -> list[str]:
    return sorted(sample.key for _, sample in dataset.all_samples())


@pytest.mark.parametrize("to", ["wds", "mds"])
@pytest.mark.parametrize("has_manifest", [True, False], ids=["ours", "foreign"])
def test_a_split_is_opened_by_its_name(source, tmp_path, to, has_manifest):
    pack_splits(source, tmp_path / "out", to)
    if not has_manifest:
        (tmp_path / "out" / "shardtools.manifest").unlink()
    whole = open_dataset(str(tmp_path / "out"))
    assert keys_in(whole) == KEYS
    for split, keys in IN.items():
        dataset = open_dataset(str(tmp_path / "out"), split)
        assert keys_in(dataset) == keys
        assert dataset.num_samples in (len(keys), None)
        # Every shard keeps its place in the whole: records of it are found by that.
        assert all(whole.shards[shard.index] == shard for shard in dataset.shards)


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_a_split_is_opened_by_its_place(source, tmp_path, to):
    pack_splits(source, tmp_path / "out", to)
    for split, keys in IN.items():
        place = tmp_path / "out" / split if to == "mds" else tmp_path / "out" / f"{split}-*.tar"
        assert keys_in(open_dataset(str(place))) == keys


def test_compressed_shards_and_index_entries_belong_to_their_split(source, tmp_path):
    pack_splits(source, tmp_path / "out", "mds", compression="zstd", hashes=("sha1",))
    dataset = open_dataset(str(tmp_path / "out"))
    assert dataset.problems == ()
    for shard in dataset.shards:
        assert shard.entry is not None and shard.entry.compressed is not None
        assert shard.entry.compressed.name == shard.name and shard.name.startswith(f"{shard.split}/shard.")
    assert keys_in(dataset) == KEYS


def test_an_index_of_a_split_that_is_damaged_is_named(source, tmp_path):
    pack_splits(source, tmp_path / "out", "mds")
    (tmp_path / "out" / "val" / "index.json").write_text("{")
    with pytest.raises(UsageError, match=r"val/index\.json"):
        open_dataset(str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("split", "sentence"),
    [("dev", "got 'dev'; name one of train, val, test"), ("", "got ''; name one of"), ("rare", "no sample came into it")],
)
def test_a_split_that_is_not_there_is_refused(source, tmp_path, split, sentence):
    shares = "train=0.6,val=0.2,test=0.2" if split != "rare" else "train=0.999999,rare=0.000001"
    pack_splits(source, tmp_path / "out", shares=shares)
    with pytest.raises(UsageError, match=sentence):
        open_dataset(str(tmp_path / "out"), split)


def test_a_dataset_without_splits_has_none(source, tmp_path, build):
    build(source, tmp_path / "out", "mds", group="last-dot")
    with pytest.raises(UsageError, match="it has no splits: leave the split out"):
        open_dataset(str(tmp_path / "out"), "train")


@pytest.mark.parametrize("pair", [["../x", "0.6"], ["", "0.6"], [7, "0.6"], ["train"], "train"])
def test_a_manifest_with_impossible_splits_is_damaged(source, tmp_path, pair):
    manifest = pack_splits(source, tmp_path / "out")
    manifest.recipe["selection"]["split"][0] = pair
    (tmp_path / "out" / "shardtools.manifest").write_bytes(manifest.serialize())
    with pytest.raises(UsageError, match=r"shardtools\.manifest"):
        open_dataset(str(tmp_path / "out"))


# A number of the last one's size would take minutes, and gigabytes.
@pytest.mark.parametrize("share", ["much", None, 1, float("inf"), "-1", "1/0", "1e1000000000"])
def test_a_manifest_with_impossible_shares_is_damaged(source, tmp_path, share):
    manifest = pack_splits(source, tmp_path / "out")
    manifest.recipe["selection"]["split"][0] = ["train", share]
    (tmp_path / "out" / "shardtools.manifest").write_bytes(manifest.serialize())
    with pytest.raises(UsageError, match=r"shardtools\.manifest .*no share that pack would write"):
        open_dataset(str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("part", "value"), [("transforms", 5), ("transforms", [{}]), ("selection", {"split": [["a", "1"]], "group_by": [1]})]
)
def test_a_manifest_with_another_recipe_is_damaged(source, tmp_path, part, value):
    manifest = pack_splits(source, tmp_path / "out")
    manifest.recipe[part] = value
    (tmp_path / "out" / "shardtools.manifest").write_bytes(manifest.serialize())
    with pytest.raises(UsageError, match=r"shardtools\.manifest"):
        open_dataset(str(tmp_path / "out"))


@pytest.mark.parametrize("count", ["3", None, -1, 1.5])
def test_a_manifest_with_impossible_counts_is_damaged(source, tmp_path, count):
    manifest = pack_splits(source, tmp_path / "out")
    manifest.ledger.filters["where"] = count
    (tmp_path / "out" / "shardtools.manifest").write_bytes(manifest.serialize())
    with pytest.raises(UsageError, match=r"shardtools\.manifest"):
        open_dataset(str(tmp_path / "out"))


def test_the_manifest_says_which_split_each_shard_is_of(source, tmp_path):
    manifest = pack_splits(source, tmp_path / "out")
    stored = Manifest.parse((tmp_path / "out" / "shardtools.manifest").read_bytes())
    assert stored.shards == manifest.shards and stored.splits == ("train", "val", "test")
    content = json.loads((tmp_path / "out" / "shardtools.manifest").read_text())
    assert content["recipe"]["selection"] == {"split": [["train", "0.6"], ["val", "0.2"], ["test", "0.2"]]}
    assert {shard["split"] for shard in content["shards"]} == {"train", "val", "test"}


def test_a_split_in_a_bucket(source, moto_uri):
    pack_splits(source, moto_uri, "mds")
    for split, keys in IN.items():
        assert keys_in(open_dataset(moto_uri, split)) == keys
        assert keys_in(open_dataset(f"{moto_uri}/{split}")) == keys


def test_a_split_of_a_foreign_folder_of_folders(source, tmp_path):
    """As StreamingDataset(local, split=...) and many datasets on the Hub have it."""
    pack_splits(source, tmp_path / "out", "mds")
    for split in IN:
        shutil.copytree(tmp_path / "out" / split, tmp_path / "foreign" / "deep" / split)
    assert keys_in(open_dataset(str(tmp_path / "foreign"), "val")) == IN["val"]
