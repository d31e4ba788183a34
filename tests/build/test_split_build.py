"""Stops samples in the wrong split, groups in two, and splits whose shards depend on who built them."""

import hashlib
from collections import Counter
from fractions import Fraction

import pytest
from scattering import SPLIT, keys_in, make_records, pack, write_records
from shuffled_engine import Shuffled

from shardtools import partitions as partitions_module
from shardtools.build.stages import layout, spill
from shardtools.engines.processes import Processes
from shardtools.errors import ShardtoolsError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.selection import Selection
from shardtools.sources.files import Files

BY_KEY, BY_GROUP = Selection(split=SPLIT), Selection(split=SPLIT, group_by="group")


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


@pytest.fixture
def source(tmp_path):
    return write_records(tmp_path / "src", make_records(1500))


def split_of(name: str) -> str:
    """By exact fractions: the first 8 bytes of SHA-256 as a share of 2**64."""
    place = Fraction(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"), 2**64)
    return "train" if place < Fraction("0.7") else "val" if place < Fraction("0.9") else "test"


def in_each(result, folder) -> dict[str, list[str]]:
    return {split: keys_in(result, folder, split) for split, _ in SPLIT}


def test_each_sample_is_in_the_split_of_its_key_in_the_order_of_the_input(source, tmp_path):
    found = in_each(pack(source, tmp_path / "out", selection=BY_KEY), tmp_path / "out")
    keys = [f"k{i:07d}" for i in range(1500)]
    assert found == {split: [key for key in keys if split_of(key) == split] for split, _ in SPLIT}
    assert len(found["train"]) > 900 and len(found["test"]) > 100


def test_groups_stay_together(source, tmp_path):
    found = in_each(pack(source, tmp_path / "out", selection=BY_GROUP, seed=2), tmp_path / "out")
    groups = {split: {int(key[1:]) // 4 for key in keys} for split, keys in found.items()}
    assert {split: {split_of(f'"g{group}"') for group in its} for split, its in groups.items()} == {split: {split} for split, _ in SPLIT}
    assert sum(map(len, found.values())) == 1500


@pytest.mark.parametrize("format_", [Wds(), Mds()], ids=["wds", "mds"])
def test_a_bad_sample_gives_its_group_to_no_other_of_its_key(tmp_path, format_):
    # Two of one key, of which only the second can be stored: it belongs to the split of its own group.
    other = next(f"g{i}" for i in range(1, 100) if split_of(f'"g{i}"') != split_of('"g0"'))
    records = [{"id": f"k{i:07d}", "group": f"g{i % 8}", "n": i} for i in range(1000)]
    twice = [{"id": "twice", "group": "g0", "n": "none"}, {"id": "twice", "group": other, "n": 1}]
    source = write_records(tmp_path / "src", [*records, *twice], num_files=1)
    result = pack(source, tmp_path / "out", format_, selection=BY_GROUP, max_bad="1", map="cls=n")
    counts = Counter[str]()
    for shard in result.manifest.shards:
        counts[shard.split] += shard.num_samples
    expected = Counter(split_of(f'"{record["group"]}"') for record in [*records, twice[1]])
    assert counts == expected


def test_each_split_is_shuffled_by_itself(source, tmp_path):
    plain = in_each(pack(source, tmp_path / "plain", selection=BY_KEY), tmp_path / "plain")
    mixed = in_each(pack(source, tmp_path / "out", selection=BY_KEY, seed=2), tmp_path / "out")
    assert all(sorted(mixed[split]) == plain[split] != mixed[split] for split in plain)
    order = keys_in(pack(source, tmp_path / "whole", seed=2), tmp_path / "whole")
    assert mixed == {split: [key for key in order if split_of(key) == split] for split, _ in SPLIT}


def test_samples_stay_in_their_split_when_some_are_added(tmp_path):
    few, many = make_records(300), make_records(600)
    small = in_each(pack(write_records(tmp_path / "few", few), tmp_path / "a", selection=BY_KEY), tmp_path / "a")
    large = in_each(pack(write_records(tmp_path / "many", many), tmp_path / "b", selection=BY_KEY), tmp_path / "b")
    assert all(set(small[split]) <= set(large[split]) for split in small)


@pytest.mark.parametrize(("format_", "seed"), [(Wds(), None), (Mds(), 4)], ids=["wds", "mds"])
def test_every_engine_gives_the_same_files(source, tmp_path, digests, format_, seed):
    for i, engine in enumerate([None, Shuffled(5), Processes(2)]):
        pack(source, tmp_path / str(i), format_, selection=BY_KEY, seed=seed, engine=engine)
    assert digests(tmp_path / "1") == digests(tmp_path / "0") == digests(tmp_path / "2")


@pytest.mark.parametrize("seed", [None, 4])
def test_how_spills_are_cut_changes_no_byte(source, tmp_path, digests, monkeypatch, seed):
    pack(source, tmp_path / "one", selection=BY_KEY, seed=seed)
    monkeypatch.setattr(spill, "RUN_BYTES", 3000)
    monkeypatch.setattr(layout, "BUCKET_BYTES", 50_000)
    pack(source, tmp_path / "two", selection=BY_KEY, seed=seed)
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


@pytest.mark.parametrize("seed", [None, 4])
def test_every_shard_but_the_last_of_a_split_has_exactly_so_many(source, tmp_path, seed):
    result = pack(source, tmp_path / "out", selection=BY_KEY, shard_samples=32, seed=seed)
    totals = Counter(split_of(f"k{i:07d}") for i in range(1500))
    for split, total in totals.items():
        counts = [shard.num_samples for shard in result.manifest.shards if shard.split == split]
        assert counts == [32] * (total // 32) + ([total % 32] if total % 32 else [])


def test_shards_of_every_split_are_filled(source, tmp_path):
    result = pack(source, tmp_path / "out", Mds(), selection=BY_KEY, shard_bytes=10_240)
    for split, _ in SPLIT[:2]:
        sizes = [shard.num_bytes for shard in result.manifest.shards if shard.split == split]
        assert max(sizes) <= 10_240
        assert len(sizes) < 20 or sum(sizes) / len(sizes) / 10_240 > 0.9


def test_an_empty_split_is_a_warning(tmp_path):
    source = write_records(tmp_path / "src", make_records(5))
    result = pack(source, tmp_path / "out", selection=Selection(split=(("a", "0.999999999"), ("b", "0.000000001"))))
    assert any("b has no sample" in warning for warning in result.warnings)
    assert len(keys_in(result, tmp_path / "out", "a")) == 5


def test_one_sample_is_in_one_split(tmp_path):
    source = write_records(tmp_path / "src", make_records(1), 1)
    result = pack(source, tmp_path / "out", selection=BY_KEY, seed=1)
    assert [shard.split for shard in result.manifest.shards] == [split_of("k0000000")]


def test_no_sample_at_all_is_an_error(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.jsonl").write_bytes(b'{"id": "a", "n": 1}\n' + b'{"id": 5.5, "n": 1}\n' * 3)
    from shardtools.transforms.select import Select

    with pytest.raises(ShardtoolsError, match="at least one sample"):
        pack(tmp_path / "src", tmp_path / "out", selection=BY_KEY, seed=1, max_bad="3", steps=(Select.of("n = 2"),))


def test_small_files_are_split(tree, tmp_path):
    source = tree({f"{i:04d}.txt": b"x" * 200 for i in range(600)})
    result = pack(source, tmp_path / "out", reader=Files(), selection=BY_KEY, seed=6)
    found = in_each(result, tmp_path / "out")
    keys = [f"{i:04d}" for i in range(600)]
    assert {split: sorted(its) for split, its in found.items()} == {
        split: [key for key in keys if split_of(key) == split] for split in found
    }
    assert found["train"] != sorted(found["train"])


@pytest.mark.parametrize("seed", [None, 3])
def test_everything_together(tmp_path, digests, seed):
    records = make_records(1200)
    for i in range(100, 1200, 7):
        records[i]["id"] = records[i - 100]["id"]
    source = write_records(tmp_path / "src", records)
    (source / "1.jsonl").write_bytes(b"bad\n" + (source / "1.jsonl").read_bytes())
    selection = Selection(limit=800, dedup="key", split=SPLIT, group_by="group")
    for i, engine in enumerate([None, Processes(2)]):
        result = pack(source, tmp_path / str(i), Mds(), selection=selection, seed=seed, max_bad="2", engine=engine)
    assert digests(tmp_path / "1") == digests(tmp_path / "0")
    ledger = result.manifest.ledger
    assert ledger.num_written == 800 == sum(shard.num_samples for shard in result.manifest.shards)
    assert ledger.num_rejected == 1 and set(ledger.filters) <= {"dedup", "limit"} and ledger.filters["dedup"] > 90
