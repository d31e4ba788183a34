"""Every sample is in the split that the rule gives it, and every index says so. Stops a val set that holds training samples."""

import hashlib
import json
from pathlib import Path

import pytest
from split_datasets import expected_split, pack_splits

from shardtools.errors import UsageError
from shardtools.manifest import Manifest
from shardtools.selection import Selection
from shardtools.verify import DeliveryOptions, VerifyOptions, verify

KEYS = [f"d/{i:02d}" for i in range(40)]


@pytest.fixture
def source(tree) -> Path:
    return tree({f"{key}.txt": key.encode() * int(key[2:]) for key in KEYS})


def kinds(verdict) -> set[str]:
    return {finding.kind for finding in verdict.findings}


@pytest.mark.parametrize(("to", "options"), [("wds", {}), ("mds", {}), ("mds", {"compression": "zstd:3", "hashes": ("xxh64",)})])
def test_a_sound_dataset_is_sound_and_says_what_each_split_holds(source, tmp_path, to, options):
    sidecars = ("dali", "wids", "energon") if to == "wds" else ()
    pack_splits(source, tmp_path / "out", to, sidecars=sidecars, **options)
    target = "webdataset" if to == "wds" else "streaming"
    verdict = verify(str(tmp_path / "out"), VerifyOptions(no_dup=True, deep=True, targets=(target,)))
    assert [str(finding) for finding in verdict.findings] == []
    assert "Every sample is in the split that its key gives it: train 24, val 5, test 11." in verdict.proved()
    delivered = [sentence for sentence in verdict.proved() if sentence.startswith("Split ")]
    assert {sentence.split(":")[0] for sentence in delivered} == {"Split train", "Split val", "Split test"}
    assert any(note.detail.startswith("in the split val: ") for note in verdict.notes)


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_samples_in_another_split_are_found_by_their_keys(source, tmp_path, monkeypatch, to):
    wrong = [key for key in KEYS if expected_split(key) == "train"][:2]
    real = Selection.split_of

    def split_of(self, names):
        return ["val" if name.decode() in wrong else split for name, split in zip(names, real(self, names), strict=True)]

    with monkeypatch.context() as patch:
        patch.setattr(Selection, "split_of", split_of)
        pack_splits(source, tmp_path / "out", to)
    verdict = verify(str(tmp_path / "out"))
    assert [(finding.kind, finding.key) for finding in verdict.findings] == [("wrong-split", key) for key in wrong]
    assert all(finding.shard is not None and "val" in finding.shard for finding in verdict.findings)
    assert "expected it in the split train, to which its key belongs, got it in val" in verdict.findings[0].detail


@pytest.mark.parametrize("fault", ["moved", "renamed", "undeclared", "filtered"])
def test_a_manifest_that_contradicts_its_splits_is_found(source, tmp_path, fault):
    manifest = pack_splits(source, tmp_path / "out")
    content = json.loads((tmp_path / "out" / "shardtools.manifest").read_text())
    if fault == "moved":
        content["shards"][0]["split"] = "val"
    elif fault == "undeclared":
        content["shards"][0]["split"] = "dev"
    elif fault == "filtered":
        content["ledger"]["filters"] = {"where": 3}
    else:
        content["recipe"]["selection"]["split"] = [["train", "0.6"], ["val", "0.2"], ["rest", "0.2"]]
    del content["sha256"]
    text = json.dumps(content, indent=1).removesuffix("\n}")
    sealed = f'{text},\n "sha256": "{hashlib.sha256(text.encode()).hexdigest()}"\n}}\n'
    (tmp_path / "out" / "shardtools.manifest").write_text(sealed)
    assert Manifest.parse(sealed.encode()).shards[1:9] == manifest.shards[1:9]
    assert "manifest-contradiction" in kinds(verify(str(tmp_path / "out")))


@pytest.mark.parametrize("fault", ["missing", "swapped", "other", "root"])
def test_indices_of_splits_are_compared_with_the_manifest(source, tmp_path, fault):
    pack_splits(source, tmp_path / "out", "mds")
    train, val = (tmp_path / "out" / split / "index.json" for split in ("train", "val"))
    if fault == "missing":
        val.unlink()
        expected = {"missing-file"}
    elif fault == "root":
        (tmp_path / "out" / "index.json").write_bytes(val.read_bytes())
        expected = {"extra-file"}
    elif fault == "swapped":
        one, other = train.read_bytes(), val.read_bytes()
        train.write_bytes(other)
        val.write_bytes(one)
        expected = {"index-contradiction", "wrong-size"}
    else:
        val.write_text(val.read_text().replace("shard.00000.mds", "shard.00009.mds"))
        expected = {"index-contradiction", "wrong-sha256"}
    verdict = verify(str(tmp_path / "out"))
    assert kinds(verdict) >= expected
    assert all("val" in str(finding) or "train" in str(finding) or fault == "root" for finding in verdict.findings)


def test_equal_content_in_two_splits_is_said(tree, tmp_path):
    pairs = [next(key for key in KEYS if expected_split(key) == split) for split in ("train", "test")]
    source = tree({f"{key}.txt": b"the same" for key in pairs})
    pack_splits(source, tmp_path / "out")
    (note,) = [note for note in verify(str(tmp_path / "out"), VerifyOptions(no_dup=True)).notes if note.kind == "duplicate-content"]
    assert "in two splits, train and test" in note.detail


def test_keys_that_are_not_stored_prove_nothing_of_splits(source, tmp_path):
    pack_splits(source, tmp_path / "out", "mds", key_column=None)
    verdict = verify(str(tmp_path / "out"))
    assert verdict.is_sound
    assert not any("in the split" in sentence for sentence in verdict.proved())
    assert "that samples are in the splits that their keys give them" in verdict.closing()


def test_a_reader_of_ones_own_is_given_one_split(source, tmp_path):
    pack_splits(source, tmp_path / "out", "mds")
    asked = VerifyOptions(no_dup=True, delivery=DeliveryOptions(factory="os:getcwd"))
    with pytest.raises(UsageError, match="expected one split for --dataset, got a dataset of train, val, test; verify one of them"):
        verify(str(tmp_path / "out"), asked)


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "reader", "options"),
    [
        ("wds", "webdataset", {}),
        ("wds", "shardtools", {}),
        ("mds", "streaming", {}),
        ("mds", "streaming", {"key_column": None}),
        ("mds", "shardtools", {"compression": "zstd"}),
    ],
)
def test_real_readers_deliver_each_split(source, tmp_path, to, reader, options):
    pytest.importorskip(reader if reader != "shardtools" else "torch", reason="needs the extra train")
    pack_splits(source, tmp_path / "out", to, shares="train=0.8,val=0.2", **options)
    asked = VerifyOptions(no_dup=True, delivery=DeliveryOptions(world_sizes=(1,), num_workers=(2,), live=True, reader=reader))
    verdict = verify(str(tmp_path / "out"), asked)
    assert [str(finding) for finding in verdict.findings] == []
    live = [sentence for sentence in verdict.proved() if f"{reader}, run in real processes, delivered every sample" in sentence]
    assert [sentence.split(":")[0] for sentence in live] == ["Split train", "Split val"]
