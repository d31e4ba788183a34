"""A dataset with splits is published whole: names and indices of each split, one manifest. Stops readers of ``val`` that get ``train``."""

import hashlib
import json
import struct
import tarfile
from pathlib import Path

import pytest
from split_datasets import build_splits, expected_split, pack_splits

from shardtools.build.publish import Publisher
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.manifest import Manifest
from shardtools.storage.local import Local

KEYS = [f"d/{i:02d}" for i in range(40)]
IN = {split: [key for key in KEYS if expected_split(key) == split] for split in ("train", "val", "test")}


@pytest.fixture
def source(tree) -> Path:
    assert {split: len(keys) for split, keys in IN.items()} == {"train": 24, "val": 5, "test": 11}
    return tree({f"{key}.txt": key.encode() * int(key[2:]) for key in KEYS})


def folders(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir())


def keys_of(tars: list[Path]) -> list[str]:
    found = []
    for tar in tars:
        with tarfile.open(tar, "r:") as archive:
            found += [name.removesuffix(".txt") for name in archive.getnames()]
    return found


def test_wds_shards_are_named_and_numbered_split_by_split(source, tmp_path):
    manifest = pack_splits(source, tmp_path / "out")
    assert [shard.name for shard in manifest.shards] == (
        [f"train-{n:06d}.tar" for n in range(6)] + [f"val-{n:06d}.tar" for n in range(2)] + [f"test-{n:06d}.tar" for n in range(3)]
    )
    assert [shard.split for shard in manifest.shards] == ["train"] * 6 + ["val"] * 2 + ["test"] * 3
    assert manifest.splits == ("train", "val", "test")
    for split, keys in IN.items():
        assert sorted(keys_of(sorted((tmp_path / "out").glob(f"{split}-*.tar")))) == keys
    data = (tmp_path / "out" / "shardtools.offsets").read_bytes()
    assert len(data) == 8 * (40 + 11)
    begin = 0
    for shard in manifest.shards:
        with tarfile.open(tmp_path / "out" / shard.name, "r:") as archive:
            expected = [member.offset for member in archive]
        found = struct.unpack_from(f"<{shard.num_samples + 1}Q", data, begin)
        assert list(found[:-1]) == expected
        begin += 8 * (shard.num_samples + 1)


def test_every_split_of_mds_is_a_dataset_of_its_own(source, tmp_path, read_mds_raw):
    manifest = pack_splits(source, tmp_path / "out", "mds")
    assert not (tmp_path / "out" / "index.json").exists()
    for split, keys in IN.items():
        rows = read_mds_raw(tmp_path / "out" / split)
        assert sorted(row["key"].decode() for row in rows) == keys
        names = [entry["raw_data"]["basename"] for entry in json.loads((tmp_path / "out" / split / "index.json").read_text())["shards"]]
        assert names == [f"shard.{n:05d}.mds" for n in range(len(names))]
    assert {file.name for file in manifest.files} == {"shardtools.offsets", "train/index.json", "val/index.json", "test/index.json"}
    for file in manifest.files:
        assert hashlib.sha256((tmp_path / "out" / file.name).read_bytes()).hexdigest() == file.sha256


def test_the_indices_are_there_before_the_manifest_and_the_shards_before_both(source, tmp_path, monkeypatch):
    order = []
    real_put, real_move = Local.put, Local.move

    def put(self, name, data):
        order.append(name)
        real_put(self, name, data)

    def move(self, old, new):
        order.append(new)
        return real_move(self, old, new)

    monkeypatch.setattr(Local, "put", put)
    monkeypatch.setattr(Local, "move", move)
    pack_splits(source, tmp_path / "out", "mds")
    shards = [i for i, name in enumerate(order) if name.endswith(".mds")]
    indices = [i for i, name in enumerate(order) if name.endswith("index.json")]
    assert len(indices) == 3 and max(shards) < min(indices) < max(indices) < order.index("shardtools.manifest")


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_a_publication_that_is_killed_at_any_step_goes_on(tree, tmp_path, monkeypatch, digests, to):
    source = tree({f"{key}.txt": key.encode() for key in IN["train"][:5] + IN["test"][:2]})
    sidecars = ("wids", "energon", "dali") if to == "wds" else ()
    pack_splits(source, tmp_path / "clean", to, sidecars=sidecars)
    clean = digests(tmp_path / "clean")
    real_put, real_move = Local.put, Local.move
    left = [0]

    def counted(real):
        def call(self, name, *rest):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return real(self, name, *rest)

        return call

    step = 1
    while True:
        out = tmp_path / f"out{step}"
        with monkeypatch.context() as patch:
            patch.setattr(Local, "put", counted(real_put))
            patch.setattr(Local, "move", counted(real_move))
            left[0] = step
            try:
                pack_splits(source, out, to, sidecars=sidecars)
                killed = False
            except KeyboardInterrupt:
                killed = True
        if not killed:
            break
        assert not (out / "shardtools.manifest").exists() or Manifest.parse((out / "shardtools.manifest").read_bytes())
        pack_splits(source, out, to, sidecars=sidecars)
        assert digests(out) == clean, f"killed at step {step}"
        step += 1
    assert step > (12 if to == "wds" else 9)


@pytest.mark.parametrize(("old", "new"), [("wds", "mds"), ("mds", "wds"), ("mds", "mds")])
def test_overwriting_leaves_nothing_of_the_old_splits(source, tmp_path, digests, old, new):
    sidecars = ("wids", "energon") if old == "wds" else ()
    pack_splits(source, tmp_path / "out", old, shares="a=0.5,b=0.5", sidecars=sidecars)
    pack_splits(source, tmp_path / "out", new, overwrite=True)
    pack_splits(source, tmp_path / "clean", new)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")
    assert folders(tmp_path / "out") == folders(tmp_path / "clean")


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_overwriting_takes_an_unfinished_publication_of_other_splits_away(source, tmp_path, monkeypatch, digests, to):
    sidecars = ("wids", "energon", "dali") if to == "wds" else ()
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "_check_sizes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pack_splits(source, tmp_path / "out", to, shares="a=0.5,b=0.5", sidecars=sidecars)
    assert list((tmp_path / "out").glob("a*"))
    pack_splits(source, tmp_path / "out", to, overwrite=True)
    pack_splits(source, tmp_path / "clean", to)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")
    assert folders(tmp_path / "out") == folders(tmp_path / "clean")


@pytest.mark.parametrize(("to", "name"), [("wds", "a/index.json"), ("mds", "a-shardindex.json")])
def test_an_unfinished_publication_takes_no_other_datasets_index_with_it(source, tmp_path, monkeypatch, to, name):
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "_check_sizes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pack_splits(source, tmp_path / "out", to, shares="a=0.5,b=0.5")
    other = tmp_path / "out" / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("{}")
    with pytest.raises(UsageError, match="that no manifest names"):
        pack_splits(source, tmp_path / "out", to, overwrite=True)
    assert other.read_text() == "{}"


def test_other_shares_or_names_are_another_plan(source, tmp_path):
    pack_splits(source, tmp_path / "out")
    with pytest.raises(ShardtoolsError, match=r"selection\.split"):
        pack_splits(source, tmp_path / "out", shares="train=0.8,val=0.2")


def test_a_split_without_a_sample_is_said(source, tmp_path):
    result = build_splits(source, tmp_path / "out", "mds", shares="train=0.999999,rare=0.000001")
    manifest = result.manifest
    assert result.warnings == ["the split rare has no sample, and no shard"]
    assert manifest.splits == ("train", "rare")
    assert not (tmp_path / "out" / "rare").exists()


def test_wids_has_an_index_a_split_and_energon_the_shards_of_each(source, tmp_path):
    manifest = pack_splits(source, tmp_path / "out", sidecars=("wids", "energon", "dali"))
    for split in IN:
        content = json.loads((tmp_path / "out" / f"{split}-shardindex.json").read_text())
        names = [shard.name for shard in manifest.shards if shard.split == split]
        assert [shard["url"] for shard in content["shardlist"]] == names
        assert sum(shard["nsamples"] for shard in content["shardlist"]) == len(IN[split])
        assert all((tmp_path / "out" / name).with_suffix(".idx").exists() for name in names)
    assert (tmp_path / "out" / ".nv-meta" / "split.yaml").read_text() == (
        "exclude: []\nsplit_parts:\n"
        '  "train":\n' + "".join(f"  - train-{n:06d}.tar\n" for n in range(6)) + '  "val":\n  - val-000000.tar\n  - val-000001.tar\n'
        '  "test":\n' + "".join(f"  - test-{n:06d}.tar\n" for n in range(3))
    )
    assert list(json.loads((tmp_path / "out" / ".nv-meta" / ".info.json").read_text())["shard_counts"]) == [
        shard.name for shard in manifest.shards
    ]


def test_a_dataset_without_splits_is_described_as_it_always_was(source, tmp_path, build):
    manifest = build(source, tmp_path / "out", "mds", group="last-dot").manifest
    text = (tmp_path / "out" / "shardtools.manifest").read_text()
    assert '"split"' not in text and '"selection"' not in text
    assert manifest.splits == ()


@pytest.mark.parametrize("shares", ["train=0.6,val=0.2,test=0.2", "2024=0.4,null=0.3,no=0.3"])
def test_the_splits_for_energon_are_yaml_as_its_parser_reads_it(source, tmp_path, shares):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: the extra `train` brings it")
    manifest = pack_splits(source, tmp_path / "out", shares=shares, sidecars=("energon",))
    content = yaml.safe_load((tmp_path / "out" / ".nv-meta" / "split.yaml").read_text())
    shards = {split: [shard.name for shard in manifest.shards if shard.split == split] for split in manifest.splits}
    assert content == {"exclude": [], "split_parts": shards}
