"""Stops anything but input and recipe from reaching a published byte: workers, order, retries, hash seed, time zone, umask, locale."""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from shuffled_engine import Shuffled

from shardtools import partitions as partitions_module
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds

SHARD_BYTES = 20480
FORMATS = {"wds": Wds(), "mds": Mds(hashes=("sha1", "xxh64")), "mds-zstd": Mds(compression="zstd")}

GOLDEN_WDS = "f976b772663e5f49fd0104102b44385a8e52f1042fdbdc632b84d95510ca120f"
GOLDEN_MDS = "160f223e1cceddbececfcea045aa11a7df9bbbac641dcb52ba3f3ba608b97913"
GOLDEN_INDEX = "6d1bbd6b355f32c7b5c514544db6f91bd0bc943f944b38ef836ed7fbf9b873ff"


class Twice(Serial):
    """Runs every item two times, as after a worker that was lost too late."""

    def run(self, task, items, report, *rest) -> None:
        for item in items:
            task(item, report)
        super().run(task, items, report, *rest)


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch):
    """Partitions of 32 KiB, so that little input has many."""
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 32 << 10)


@pytest.fixture
def source(tree) -> Path:
    """300 samples of two files, under names that are escaped."""
    numbers = random.Random(1)
    files = {f"{'abc'[i % 3]}/é {i:03d}.{kind}": numbers.randbytes(numbers.randint(0, 2000)) for i in range(300) for kind in ("bin", "dat")}
    return tree(files)


@pytest.mark.parametrize("seed", [None, 5], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_engine_publishes_the_same_files(source, build, plan, digests, tmp_path, name, seed):
    assert len(plan(source, FORMATS[name]).plan.partitions) > 8
    engines = [Serial(), Twice(), Shuffled(1), Shuffled(2)]
    found = []
    for i, engine in enumerate(engines):
        build(source, tmp_path / str(i), FORMATS[name], engine=engine, seed=seed, shard_bytes=SHARD_BYTES)
        found.append(digests(tmp_path / str(i)))
    assert len(found[0]) > 20
    for other in found[1:]:
        assert other == found[0]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("name", ["wds", "mds"])
def test_any_number_of_processes_publishes_what_one_does(source, build, digests, tmp_path, name, workers):
    build(source, tmp_path / "serial", FORMATS[name], shard_bytes=SHARD_BYTES)
    build(source, tmp_path / "processes", FORMATS[name], engine=Processes(workers), shard_bytes=SHARD_BYTES)
    assert digests(tmp_path / "processes") == digests(tmp_path / "serial")


def test_rejects_are_the_same_for_any_order(tree, build, digests, tmp_path):
    source = tree({f"{i:03d}.txt": b"\xff" if i % 7 == 0 else b"x" * 3000 for i in range(100)})
    for i, engine in enumerate([Serial(), Shuffled(1), Processes(3)]):
        result = build(source, tmp_path / str(i), "mds", engine=engine, shard_bytes=SHARD_BYTES, max_bad="50")
        assert result.manifest.ledger.rejects == {"wrong-type": 15}
    assert digests(tmp_path / "0") == digests(tmp_path / "1") == digests(tmp_path / "2")
    assert len((tmp_path / "0" / ".shardtools" / "rejects").read_bytes().splitlines()) == 15


CODE = """
import json, os, sys
from shardtools import partitions
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.engines.processes import Processes
from shardtools.formats.wds import Wds
from shardtools.formats.mds import Mds
from shardtools.plan import ShardLimit
from shardtools.sources.files import Files
if __name__ == "__main__":
    source, destination, umask = sys.argv[1:]
    os.umask(int(umask, 8))
    partitions.MIN_PARTITION_BYTES = 32 << 10
    for name, chosen in (("wds", Wds()), ("mds", Mds(hashes=("sha1", "xxh64")))):
        run.build([source], os.path.join(destination, name), Order(Files(), chosen, ShardLimit(20480)), run.RunOptions(engine=Processes(2)))
"""
SETTINGS = [
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Auckland", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "umask": "077"},
    {"PYTHONHASHSEED": "999", "TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8", "umask": "000"},
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONOPTIMIZE": "2", "umask": "027"},
]


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_surroundings_change_nothing(source, build, digests, tmp_path, number):
    for name in ("wds", "mds"):
        build(source, tmp_path / "here" / name, FORMATS[name], shard_bytes=SHARD_BYTES)
    settings = dict(SETTINGS[number])
    umask = settings.pop("umask")
    (tmp_path / "pack.py").write_text(CODE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LC_") and name != "LANG"} | settings
    environment["PYTHONPATH"] = str(Path(partitions_module.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, tmp_path / "pack.py", source, tmp_path / "there", umask],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "there") == digests(tmp_path / "here")


def test_the_place_and_age_of_the_input_change_nothing(source, build, digests, tmp_path):
    build(source, tmp_path / "one", shard_bytes=SHARD_BYTES)
    moved = tmp_path / "elsewhere" / "renamed"
    moved.parent.mkdir()
    source.rename(moved)
    for path in moved.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    build(moved, tmp_path / "two", shard_bytes=SHARD_BYTES)
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_no_path_host_or_date_is_in_what_is_published(source, build, tmp_path):
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES)
    manifest = (tmp_path / "out" / "shardtools.manifest").read_text()
    assert str(tmp_path) not in manifest and os.uname().nodename not in json.loads(manifest)["recipe"].values()
    assert set(json.loads(manifest)) == {"format", "plan", "recipe", "ledger", "shards", "files", "sha256"}


def test_the_bytes_are_these_for_ever(tree, build, ustar, digests, tmp_path, monkeypatch):
    """The literals were made by Python's tarfile and by MDSWriter 0.13.0 from the same samples."""
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16 << 20)
    samples = [(f"s/{i:02d}", bytes([i]) * (i * 100), b'{"i": %d}' % i) for i in range(30)]
    source = tree({f"{key}.{name}": data for key, one, two in samples for name, data in (("bin", one), ("json", two))})
    build(source, tmp_path / "wds", "wds")
    build(source, tmp_path / "mds", "mds")
    archive = ustar([member for key, one, two in samples for member in ((f"{key}.bin", one), (f"{key}.json", two))])
    assert hashlib.sha256(archive).hexdigest() == GOLDEN_WDS
    assert digests(tmp_path / "wds")["train-000000.tar"] == GOLDEN_WDS
    assert digests(tmp_path / "mds")["shard.00000.mds"] == GOLDEN_MDS
    assert digests(tmp_path / "mds")["index.json"] == GOLDEN_INDEX
