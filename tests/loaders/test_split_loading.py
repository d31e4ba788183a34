"""Loaders read the split that is asked for and nothing else: ours, StreamingDataset and webdataset. Stops training on the test set."""

import glob
import tempfile
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from split_datasets import expected_split, pack_splits  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from worlds import QUIET  # noqa: E402

from shardtools.errors import UsageError  # noqa: E402
from shardtools.loaders import LoaderOptions, open_dataset  # noqa: E402

pytestmark = QUIET

KEYS = [f"d/{i:02d}" for i in range(40)]
IN = {split: [key for key in KEYS if expected_split(key) == split] for split in ("train", "val", "test")}


@pytest.fixture
def source(tree) -> Path:
    return tree({f"{key}.txt": text_of(key).encode() for key in KEYS})


def text_of(key: str) -> str:
    """Of all lengths, so that no two shards have their samples at the same places."""
    return key * (1 + 40 * int(key[2:]))


@pytest.mark.parametrize(("to", "options"), [("wds", {}), ("mds", {}), ("mds", {"compression": "zstd"}), ("mds", {"key_column": None})])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_split_is_read_alone_and_whole(source, tmp_path, to, options, shuffle):
    pack_splits(source, tmp_path / "out", to, **options)
    for split, keys in IN.items():
        chosen = LoaderOptions(split=split, cache_folder=str(tmp_path / "cache"))
        dataset = open_dataset(str(tmp_path / "out"), batch_size=2, shuffle=shuffle, seed=5, options=chosen)
        found = [sample["txt"].decode() for sample in dataset]
        assert len(dataset) == len(keys)
        assert sorted(found) == [text_of(key) for key in keys]
        # By number and, where there are any, by key: the offsets of a split begin in the middle of those of all.
        samples = dataset.as_map()
        assert sorted(samples[i]["txt"].decode() for i in range(len(samples))) == [text_of(key) for key in keys]
        if options.get("key_column", "key") is not None:
            assert samples[keys[-1]]["txt"].decode() == text_of(keys[-1])


def test_that_all_splits_are_read_is_said(source, tmp_path, caplog, build):
    pack_splits(source, tmp_path / "out")
    assert len(open_dataset(str(tmp_path / "out"))) == 40
    (record,) = caplog.records
    said = f'all splits of {tmp_path}/out are read (train, val, test): LoaderOptions(split="train") reads one'
    assert record.getMessage() == said
    caplog.clear()
    open_dataset(str(tmp_path / "out"), options=LoaderOptions(split="val"))
    open_dataset(str(tmp_path / "out"), options=LoaderOptions(rank=1, world_size=2, last_batch="drop"))
    build(source, tmp_path / "plain", group="last-dot")
    open_dataset(str(tmp_path / "plain"))
    assert caplog.records == []


def test_workers_share_a_split(source, tmp_path):
    pack_splits(source, tmp_path / "out")
    dataset = open_dataset(str(tmp_path / "out"), batch_size=2, shuffle=True, seed=1, options=LoaderOptions(split="val"))
    found = [key for batch in DataLoader(dataset, batch_size=2, num_workers=2) for key in batch["__key__"]]
    assert sorted(found) == IN["val"]


def test_keys_that_are_not_stored_are_those_of_the_whole_dataset(source, tmp_path):
    pack_splits(source, tmp_path / "out", "mds", key_column=None)
    whole = {sample["__key__"]: bytes(sample["txt"]) for sample in open_dataset(str(tmp_path / "out"))}
    parts = [open_dataset(str(tmp_path / "out"), options=LoaderOptions(split=split)) for split in IN]
    assert {sample["__key__"]: bytes(sample["txt"]) for part in parts for sample in part} == whole
    assert len(whole) == 40


def test_the_state_of_one_split_is_refused_by_another(tree, tmp_path):
    """Also where both have equally many samples."""
    shares = "a=0.5,b=0.5"
    of = {split: [key for key in KEYS if expected_split(key, shares) == split][:6] for split in "ab"}
    pack_splits(tree({f"{key}.txt": b"" for keys in of.values() for key in keys}), tmp_path / "out", shares=shares)
    one, other = (open_dataset(str(tmp_path / "out"), options=LoaderOptions(split=split)) for split in "ab")
    with pytest.raises(UsageError):
        other.load_state_dict(one.state_dict())
    again = open_dataset(str(tmp_path / "out"), options=LoaderOptions(split="a"))
    again.load_state_dict(one.state_dict())


def test_a_split_of_a_bucket(source, moto_uri, tmp_path):
    pack_splits(source, moto_uri)
    options = LoaderOptions(split="test", cache_folder=str(tmp_path / "cache"))
    assert sorted(sample["__key__"] for sample in open_dataset(moto_uri, options=options)) == IN["test"]


def test_what_is_no_split_is_refused(source, tmp_path, tree):
    pack_splits(source, tmp_path / "out")
    with pytest.raises(UsageError, match="name one of train, val, test"):
        open_dataset(str(tmp_path / "out"), options=LoaderOptions(split="dev"))
    with pytest.raises(UsageError, match="the name of a split, got 3"):
        LoaderOptions(split=3)  # type: ignore[arg-type]
    lines = tree({"a.jsonl": b"{}\n"}, "lines")
    with pytest.raises(UsageError, match="got JSON lines"):
        open_dataset(str(lines), options=LoaderOptions(split="train"))


def test_streaming_dataset_reads_the_split_it_is_told(source, tmp_path, streaming, monkeypatch):
    pack_splits(source, tmp_path / "out", "mds")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for split, keys in IN.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = streaming.StreamingDataset(local=str(tmp_path / "out"), split=split, batch_size=1, shuffle=False)
            assert sorted(sample["key"] for sample in dataset) == keys


def test_webdataset_reads_the_split_by_its_pattern(source, tmp_path, webdataset):
    pack_splits(source, tmp_path / "out")
    for split, keys in IN.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            urls = sorted(glob.glob(str(tmp_path / "out" / f"{split}-*.tar")))
            found = [sample["__key__"] for sample in webdataset.WebDataset(urls, shardshuffle=False)]
        assert sorted(found) == keys
