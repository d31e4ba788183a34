"""Stops a sidecar that says what ours says it should, and yet is not what its own reader takes.

The readers are asked in processes of their own. They are large, and in no extra: ``pip install megatron-energon`` and
``pip install nvidia-dali-cuda120``, which both read without a GPU.
"""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from split_datasets import expected_split, pack_splits

from shardtools.build.merge import merge
from shardtools.build.order import OrderWords, order_of
from shardtools.build.reindex import ReindexOptions, reindex
from shardtools.build.run import build
from shardtools.sources import resolve_inputs

NUM_SAMPLES = 10
TEXT = {f"d/{i}": b"t" * (i * 130) for i in range(NUM_SAMPLES)}
LABEL = {f"d/{i}": b"%d" % i for i in range(NUM_SAMPLES)}

ENERGON = """
import json, sys
from megatron.energon import Cooker, DefaultTaskEncoder, WorkerConfig, get_loader, get_val_dataset, stateless

@stateless
def as_it_is(sample):
    return sample

class Undecoded(DefaultTaskEncoder):
    cookers = [Cooker(as_it_is)]
    decoder = None

one_process = WorkerConfig(rank=0, world_size=1, num_workers=0)
dataset = get_val_dataset(sys.argv[1], worker_config=one_process, batch_size=None, task_encoder=Undecoded())
print(json.dumps([[sample["__key__"], sample["__shard__"], len(sample["txt"]), sample["cls"].decode()] for sample in get_loader(dataset)]))
"""

DALI = """
import glob, json, sys
from nvidia.dali import fn, pipeline_def

tars = sorted(glob.glob(sys.argv[1] + "/*.tar"))

@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def reading():
    return tuple(fn.readers.webdataset(paths=tars, index_paths=[tar[:-3] + "idx" for tar in tars], ext=["txt", "cls"], name="reader"))

pipeline = reading()
pipeline.build()
found = []
for _ in range(pipeline.epoch_size("reader")):
    text, label = pipeline.run()
    found.append([len(bytes(text.at(0))), bytes(label.at(0)).decode()])
print(json.dumps(found))
"""


@pytest.fixture
def folder(tree, tmp_path: Path) -> Path:
    """Ten samples in shards of four, with all sidecars."""
    source = tree({f"{key}.txt": data for key, data in TEXT.items()} | {f"{key}.cls": data for key, data in LABEL.items()})
    inputs = resolve_inputs([str(source)])
    build(inputs, str(tmp_path / "out"), order_of(inputs, OrderWords("wds", shard_samples=4, sidecars="energon,dali,wids")))
    return tmp_path / "out"


def asked(program: str, folder: Path) -> Any:
    """What a reader says of the folder: the last line it prints."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def needs(name: str, package: str) -> None:
    """Looked for, not imported: that takes seconds, and leaves traces in this process."""
    parent, _, _ = name.rpartition(".")
    if (parent and importlib.util.find_spec(parent) is None) or importlib.util.find_spec(name) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")


@pytest.mark.slow
def test_energon_reads_every_sample_by_its_index(folder):
    needs("megatron.energon", "megatron-energon")
    # What the user of energon writes: who decodes, and which shards are for what.
    names = sorted(path.name for path in folder.glob("*.tar"))
    (folder / ".nv-meta" / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    (folder / ".nv-meta" / "split.yaml").write_text(json.dumps({"split_parts": {"train": [], "val": names, "test": []}, "exclude": []}))
    expected = [[f"d/{i}", names[i // 4], i * 130, str(i)] for i in range(NUM_SAMPLES)]
    assert asked(ENERGON, folder) == expected


HALVES = "train=0.5,val=0.5"


@pytest.fixture
def merged(tree, tmp_path: Path) -> Path:
    """Two parts with splits, merged, with all sidecars made anew."""
    for part in "ab":
        source = tree({f"{part}/{i}.txt": b"t" * i for i in range(9)} | {f"{part}/{i}.cls": b"%d" % i for i in range(9)}, part)
        pack_splits(source, tmp_path / f"packed-{part}", shares=HALVES, shard_samples=2, sidecars=("energon", "dali", "wids"))
    merge([str(tmp_path / "packed-a"), str(tmp_path / "packed-b")], str(tmp_path / "all"))
    reindex(str(tmp_path / "all"), ReindexOptions(("dali", "energon", "wids")))
    return tmp_path / "all"


KEYS = [f"{part}/{i}" for part in "ab" for i in range(9)]
MERGED = {split: [key for key in KEYS if expected_split(key, HALVES) == split] for split in ("train", "val")}


@pytest.mark.slow
def test_energon_reads_one_split_of_merged_parts(merged):
    """The file of its splits is as we made it."""
    needs("megatron.energon", "megatron-energon")
    (merged / ".nv-meta" / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    found = asked(ENERGON, merged)
    assert [(key, num_bytes, label) for key, _, num_bytes, label in found] == [(key, int(key[2:]), key[2:]) for key in MERGED["val"]]
    assert {shard.partition("-")[0] for _, shard, _, _ in found} == {"val"}


@pytest.mark.slow
def test_dali_reads_merged_parts(merged):
    needs("nvidia.dali", "nvidia-dali-cuda120")
    assert asked(DALI, merged) == [[int(key[2:]), key[2:]] for split in ("train", "val") for key in MERGED[split]]


@pytest.mark.train
@pytest.mark.parametrize("split", ["train", "val"])
def test_wids_reads_one_split_of_merged_parts(merged, tmp_path, monkeypatch, split):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wids = pytest.importorskip("wids", reason="webdataset is not installed: the extra `train` brings it")
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = wids.ShardListDataset(str(merged / f"{split}-shardindex.json"), transformations=[], keep=True)
        found = [(dataset[i]["__key__"], len(dataset[i][".txt"].read())) for i in range(len(dataset))]
    assert found == [(key, int(key[2:])) for key in MERGED[split]]


@pytest.mark.slow
def test_dali_reads_every_sample_by_its_index(folder):
    needs("nvidia.dali", "nvidia-dali-cuda120")
    assert asked(DALI, folder) == [[i * 130, str(i)] for i in range(NUM_SAMPLES)]


def test_the_index_for_dali_is_what_its_own_script_makes(folder, tmp_path):
    needs("wds2idx", "nvidia-dali-cuda120")
    spec = importlib.util.find_spec("wds2idx")
    assert spec is not None and spec.origin is not None
    for tar in sorted(folder.glob("*.tar")):
        command = [sys.executable, spec.origin, str(tar), str(tmp_path / "theirs.idx")]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})
        assert tar.with_suffix(".idx").read_bytes() == (tmp_path / "theirs.idx").read_bytes()
