"""Datasets with splits are described anew and merged split by split. Stops a merge that puts test samples into training."""

from pathlib import Path

import pytest
from split_datasets import expected_split, pack_splits

from shardtools.build.merge import MergeOptions, merge
from shardtools.build.reindex import ReindexOptions, reindex
from shardtools.datasets import open_dataset
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.manifest import Manifest
from shardtools.verify import verify

KEYS = [f"d/{i:02d}" for i in range(40)]
SPLITS = ("train", "val", "test")


def files(keys) -> dict[str, bytes]:
    return {f"{key}.txt": key.encode() * 5 for key in keys}


@pytest.fixture
def parts(tree) -> tuple[Path, Path]:
    return tree(files(KEYS[:25]), "a"), tree(files(KEYS[25:]), "b")


def keys_in(folder: Path, split: str) -> list[str]:
    return sorted(sample.key for _, sample in open_dataset(str(folder), split).all_samples())


def assert_sound(folder: Path) -> None:
    verdict = verify(str(folder))
    assert [str(finding) for finding in verdict.findings] == []
    assert any("is in the split that its key gives it" in sentence for sentence in verdict.proved())


@pytest.mark.parametrize(("to", "options"), [("wds", {}), ("mds", {}), ("mds", {"compression": "zstd"})])
@pytest.mark.parametrize("link", [False, True])
def test_a_part_that_is_added_goes_to_the_splits_of_the_whole(parts, tmp_path, to, options, link):
    for source in parts:
        pack_splits(source, tmp_path / f"packed-{source.name}", to, **options)
    done = merge([str(tmp_path / "packed-a"), str(tmp_path / "packed-b")], str(tmp_path / "all"), MergeOptions(link=link))
    assert done.manifest.splits == SPLITS
    for split in SPLITS:
        assert keys_in(tmp_path / "all", split) == [key for key in KEYS if expected_split(key) == split]
    names = [shard.name for shard in done.manifest.shards]
    number_of = {"wds": "{}-{:06d}.tar", "mds": "{}/shard.{:05d}.mds" + (".zstd" if options else "")}[to]
    counts = {split: sum(shard.split == split for shard in done.manifest.shards) for split in SPLITS}
    assert names == [number_of.format(split, n) for split in SPLITS for n in range(counts[split])]
    assert_sound(tmp_path / "all")
    assert merge([str(tmp_path / "packed-a"), str(tmp_path / "packed-b")], str(tmp_path / "all")).already_complete


@pytest.mark.parametrize("other", ["none", "shares", "foreign"])
def test_what_was_split_by_another_rule_is_refused(parts, tmp_path, build, other):
    pack_splits(parts[0], tmp_path / "a2")
    if other == "shares":
        pack_splits(parts[1], tmp_path / "b2", shares="train=0.8,val=0.2")
    else:
        build(parts[1], tmp_path / "b2", group="last-dot")
    if other == "foreign":
        (tmp_path / "b2" / "shardtools.manifest").unlink()
        words = "without splits"
    else:
        words = {"none": "without splits", "shares": "--split train=0.8,val=0.2"}[other]
    with pytest.raises(UsageError, match=r"--split train=0\.6,val=0\.2,test=0\.2.*" + words.replace(".", r"\.")):
        merge([str(tmp_path / "a2"), str(tmp_path / "b2")], str(tmp_path / "all"))
    assert not (tmp_path / "all").exists()


def test_the_folder_of_one_split_is_a_dataset_to_merge(parts, tmp_path):
    for source in parts:
        pack_splits(source, tmp_path / f"packed-{source.name}", "mds")
    done = merge([str(tmp_path / f"packed-{name}" / "val") for name in "ab"], str(tmp_path / "val"))
    assert done.manifest.splits == ()
    found = sorted(sample.key for _, sample in open_dataset(str(tmp_path / "val")).all_samples())
    assert found == [key for key in KEYS if expected_split(key) == "val"]


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_index_makes_lost_and_damaged_files_of_every_split_again(parts, tmp_path, digests, to):
    folder = tmp_path / "out"
    sidecars = ("wids", "energon", "dali") if to == "wds" else ()
    pack_splits(parts[0], folder, to, sidecars=sidecars)
    before = digests(folder)
    names = [name for name in before if name.endswith(("index.json", ".idx", ".yaml", ".offsets"))]
    assert len(names) > 3
    for i, name in enumerate(names):
        (folder / name).unlink() if i % 2 else (folder / name).write_text("other")
    reindex(str(folder))
    assert digests(folder) == before
    reindex(str(folder))
    assert digests(folder) == before


@pytest.mark.parametrize("to", ["wds", "mds"])
@pytest.mark.parametrize("lost", ["manifest", "all"])
def test_index_without_a_manifest_knows_the_splits_by_the_plan_that_is_kept(parts, tmp_path, digests, to, lost):
    folder = tmp_path / "out"
    old = pack_splits(parts[0], folder, to)
    before = digests(folder)
    (folder / "shardtools.manifest").unlink()
    for path in [*folder.rglob("index.json"), folder / "shardtools.offsets"] if lost == "all" else []:
        path.unlink()
    made = reindex(str(folder)).manifest
    assert [(shard.name, shard.split, shard.sha256) for shard in made.shards] == [(s.name, s.split, s.sha256) for s in old.shards]
    after = digests(folder)
    assert before.pop("shardtools.manifest") != after.pop("shardtools.manifest")
    assert after == before
    assert_sound(folder)


def test_index_without_plan_and_manifest_knows_no_splits(parts, tmp_path):
    pack_splits(parts[0], tmp_path / "out")
    (tmp_path / "out" / "shardtools.manifest").unlink()
    (tmp_path / "out" / ".shardtools" / "plan").write_text("damaged")
    assert reindex(str(tmp_path / "out")).manifest.splits == ()
    assert verify(str(tmp_path / "out")).is_sound


def test_a_gap_in_the_numbers_of_a_split_is_refused(parts, tmp_path):
    pack_splits(parts[0], tmp_path / "out")
    (tmp_path / "out" / "shardtools.manifest").unlink()
    (tmp_path / "out" / "test-000000.tar").unlink()
    with pytest.raises(ShardtoolsError, match=r"got none named test-000000\.tar"):
        reindex(str(tmp_path / "out"))


def test_sidecars_that_are_made_later_are_those_that_pack_makes(parts, tmp_path, digests):
    kinds = ("dali", "energon", "wids")
    pack_splits(parts[0], tmp_path / "packed", sidecars=kinds)
    pack_splits(parts[0], tmp_path / "later")
    reindex(str(tmp_path / "later"), ReindexOptions(kinds))
    packed, later = digests(tmp_path / "packed"), digests(tmp_path / "later")
    for name in ("shardtools.manifest", ".shardtools/plan"):
        assert packed.pop(name) != later.pop(name)
    assert packed == later
    assert Manifest.parse((tmp_path / "later" / "shardtools.manifest").read_bytes()).splits == SPLITS
