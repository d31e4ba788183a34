"""Hugging Face `datasets` reads a published WDS folder as it lies: stops files beside the shards that its loader takes for data."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from split_datasets import expected_split, pack_splits

from shardtools.build.order import Order
from shardtools.build.run import build
from shardtools.formats.wds import Wds
from shardtools.plan import ShardLimit
from shardtools.sources.files import Files

READ = """
import json, sys
from datasets import load_dataset

rows = load_dataset(sys.argv[1], split="train", cache_dir=sys.argv[2])
print(json.dumps([[row["__key__"], row["txt"], row["json"]] for row in rows]))
"""
PACKAGE = "datasets>=3"


SPLITS = """
import json, sys
from datasets import load_dataset

found = {split: rows["__key__"] for split, rows in load_dataset(sys.argv[1], cache_dir=sys.argv[2]).items()}
files = {split: f"{sys.argv[1]}/{split}-*.tar" for split in ("train", "val", "test")}
named = {split: rows["__key__"] for split, rows in load_dataset("webdataset", data_files=files, cache_dir=sys.argv[2]).items()}
print(json.dumps([{split: sorted(keys) for split, keys in all_keys.items()} for all_keys in (found, named)]))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """In an environment of its own, since `datasets` and mosaicml-streaming want different versions of what they share."""
    folder = tmp_path_factory.mktemp("hf")
    python = str(folder / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"could not install {PACKAGE}: {installed.stderr.splitlines()[-1:]}")
    return python


def run(python: str, code: str, folder: Path, cache: Path) -> Any:
    done = subprocess.run([python, "-c", code, str(folder), str(cache)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_webdataset_loader_reads_every_sample(python: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    expected = []
    for i in range(30):
        (source / f"s{i:02d}.txt").write_text(f"text {i}")
        (source / f"s{i:02d}.json").write_text(json.dumps({"n": i}))
        expected.append([f"s{i:02d}", f"text {i}", {"n": i}])
    build([str(source)], str(tmp_path / "wds"), Order(Files(), Wds(), ShardLimit(num_samples=8)))
    assert run(python, READ, tmp_path / "wds", tmp_path / "cache") == expected


def test_the_loader_finds_the_splits_by_the_names_of_shards(python: str, tmp_path: Path, tree: Callable[..., Path]) -> None:
    """Its own name of ``val`` is ``validation``."""
    keys = [f"d/{i:02d}" for i in range(40)]
    pack_splits(tree({f"{key}.txt": key.encode() for key in keys}), tmp_path / "wds")
    expected = {split: [key for key in keys if expected_split(key) == split] for split in ("train", "val", "test")}
    found, named = run(python, SPLITS, tmp_path / "wds", tmp_path / "cache")
    assert named == expected
    assert found == {"train": expected["train"], "validation": expected["val"], "test": expected["test"]}
