"""Hugging Face `datasets` reads a published WDS folder as it lies: stops files beside the shards that its loader takes for data."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_webdataset_loader_reads_every_sample(tmp_path: Path) -> None:
    """In an environment of its own, since `datasets` and mosaicml-streaming want different versions of what they share."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    installed = subprocess.run([str(python), "-m", "pip", "install", "--quiet", PACKAGE], capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"could not install {PACKAGE}: {installed.stderr.splitlines()[-1:]}")
    source = tmp_path / "source"
    source.mkdir()
    expected = []
    for i in range(30):
        (source / f"s{i:02d}.txt").write_text(f"text {i}")
        (source / f"s{i:02d}.json").write_text(json.dumps({"n": i}))
        expected.append([f"s{i:02d}", f"text {i}", {"n": i}])
    build([str(source)], str(tmp_path / "wds"), Order(Files(), Wds(), ShardLimit(num_samples=8)))
    done = subprocess.run([str(python), "-c", READ, str(tmp_path / "wds"), str(tmp_path / "cache")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == expected
