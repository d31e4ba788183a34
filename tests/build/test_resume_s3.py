"""Stops a run into a bucket that was killed from leaving half a dataset, other bytes, uploads, or a state no rerun gets out of."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shardtools

SCRIPT = Path(__file__).with_name("killed_s3_runs.py")


def files(count: int, seed: int) -> dict[str, bytes]:
    numbers = random.Random(seed)
    return {f"{'ab'[i % 2]}/{i:04d}.bin": numbers.randbytes(numbers.randint(0, 3000)) for i in range(count)}


def schedules(tree: Any, uri: str, format_: str, seed: int, count: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}
    sources = [str(tree(files(60, 1), "source")), str(tree(files(90, 8), "other"))]
    command = [sys.executable, str(SCRIPT), format_, *sources, uri, str(seed), str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == [], f"seed {seed}: {found['problems'][0]}"
    assert found["kills"] >= count // 3


def test_runs_killed_at_random_moments_leave_no_half_dataset_and_the_last_one_gives_the_same_bytes(tree, s3_uri):
    schedules(tree, s3_uri, "mds", 3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_so_do_very_many(tree, s3_uri, format_):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    schedules(tree, s3_uri, format_, seed, 60)
