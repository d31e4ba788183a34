"""Stops a source whose samples a shuffle, a split or a limit would lose, double or leave in order, for any format."""

import pytest
from every_input import INPUTS, READ_WITH
from scattering import make_records, pack
from shuffled_engine import Shuffled

from shardtools import partitions as partitions_module
from shardtools import plugins
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.selection import Selection

COUNT = 400
KEYS = [f"k{i:07d}" for i in range(COUNT)]
SPLIT = (("a", "0.5"), ("b", "0.5"))


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


def keys_of(result, folder) -> list[str]:
    """Keys in the order of the shards, by the formats' own strict readers; each shard is read as it is."""
    format_, found = (Wds(), []) if result.manifest.format_name == "wds" else (Mds(), [])
    for shard in result.manifest.shards:
        found += [sample.key for sample in format_.stored_samples(memoryview((folder / shard.name).read_bytes()))]
    return found


@pytest.mark.parametrize("format_", [Wds(), Mds()], ids=["wds", "mds"])
@pytest.mark.parametrize("name", INPUTS)
def test_every_sample_of_every_source_comes_to_its_place_once(tmp_path, digests, name, format_):
    source = tmp_path / "in"
    INPUTS[name](source, make_records(COUNT))
    given = {"reader": plugins.make("sources", name, READ_WITH.get(name, {}), "--from"), "seed": 4}
    selection = Selection(limit=300, split=SPLIT)
    for i, engine in enumerate([None, Shuffled(3)]):
        mixed = pack(source, tmp_path / f"mixed{i}", format_, engine=engine, **given)
        some = pack(source, tmp_path / f"some{i}", format_, engine=engine, selection=selection, **given)
    keys = keys_of(mixed, tmp_path / "mixed0")
    assert sorted(keys) == KEYS != keys
    few = keys_of(some, tmp_path / "some0")
    assert len(set(few)) == 300 and set(few) <= set(KEYS)
    if name != "files":  # whose order is permuted before the first are taken
        assert sorted(few) == KEYS[:300]
    for kind in ("mixed", "some"):
        assert digests(tmp_path / f"{kind}0") == digests(tmp_path / f"{kind}1")
