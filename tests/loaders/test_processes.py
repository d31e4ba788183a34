"""Stops repeats and losses that only a killed job of real processes shows: nodes, ranks, workers, resumed as another world."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from ranks import Job  # noqa: E402
from worlds import epoch_places, global_batches  # noqa: E402

from shardtools.sources.jsonl import Jsonl  # noqa: E402

pytestmark = pytest.mark.train

EPOCH, BATCH = 3, 4
NUM_SAMPLES = 1000
COUNTS = [140, 140, 140, 140, 140, 140, 140, 20]


@pytest.fixture(params=["wds", pytest.param("mds", marks=pytest.mark.slow)])
def nodes(request: pytest.FixtureRequest, tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path) -> list[str]:
    """The same dataset in the places that three machines have it in."""
    lines = b"".join(b'{"number": %06d}\n' % (100000 + i) for i in range(NUM_SAMPLES))
    build(tree({"a.jsonl": lines}) / "a.jsonl", tmp_path / "node-0", request.param, source=Jsonl(), shard_samples=140)
    places = [tmp_path / f"node-{i}" for i in range(3)]
    for place in places[1:]:
        shutil.copytree(places[0], place)
    return [str(place) for place in places]


@pytest.fixture
def start() -> Iterator[Callable[[Job], "subprocess.Popen[bytes]"]]:
    """Jobs, each a process group of its own, none of which outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def call(job: Job) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        with open(f"{job.log}.errors", "wb") as errors:
            started.append(subprocess.Popen(job.command(), stderr=errors, env=environment, start_new_session=True))
        return started[-1]

    yield call
    for process in started:
        kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """All of the job at once, ranks and workers: nothing is flushed, nobody says good-bye."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def logged(job: Job) -> list[list[dict[str, Any]]]:
    """What each rank had, step by step; a line that is not whole was not logged."""
    texts = [Path(f"{job.log}.{rank}") for rank in range(len(job.uris))]
    whole = [path.read_text().rpartition("\n")[0].split("\n") if path.exists() else [] for path in texts]
    return [[json.loads(line) for line in lines if line] for lines in whole]


def wait_for(job: Job, process: "subprocess.Popen[bytes]", num_steps: int) -> None:
    deadline = time.monotonic() + 120
    while min(map(len, logged(job))) < num_steps:
        assert process.poll() is None, Path(f"{job.log}.errors").read_text()
        assert time.monotonic() < deadline, Path(f"{job.log}.errors").read_text()
        time.sleep(0.01)


def test_a_job_killed_in_mid_epoch_goes_on_as_another(nodes: list[str], start: Callable[..., Any], tmp_path: Path) -> None:
    keys = [f"a/{19 * i:012d}" for i in range(NUM_SAMPLES)]
    firsts = [sum(COUNTS[:shard]) for shard in range(len(COUNTS))]
    order = [keys[firsts[shard] + row] for shard, row in epoch_places(COUNTS, 3, EPOCH, 2)]

    # 2 nodes of 2 ranks of 2 workers.
    first = Job([nodes[0]] * 2 + [nodes[1]] * 2, BATCH, 2, EPOCH, str(tmp_path / "meet-1"), str(tmp_path / "log-1"), step_seconds=0.05)
    process = start(first)
    wait_for(first, process, 7)
    kill(process)
    found = logged(first)
    num_steps = min(map(len, found))
    assert 7 <= num_steps < 60  # in mid-epoch
    had = [[rank[step]["keys"] for rank in found] for step in range(num_steps)]
    assert had == global_batches(order, BATCH, 4, "short")[:num_steps]
    states = [rank[num_steps - 1]["state"] for rank in found]

    # 3 ranks of 1 worker, on another machine, by the state of any rank.
    second = Job([nodes[2]] * 3, 5, 1, EPOCH, str(tmp_path / "meet-2"), str(tmp_path / "log-2"), states[num_steps % 4], in_step=False)
    assert start(second).wait(timeout=120) == 0, Path(f"{second.log}.errors").read_text()
    rest = logged(second)
    expected = global_batches(order[num_steps * 4 * BATCH :], 5, 3, "short")
    assert [[line["keys"] for line in rank] for rank in rest] == [[step[rank] for step in expected if step[rank]] for rank in range(3)]

    # Said again without arithmetic: of the steps all ranks had, nothing twice, nothing lost.
    before = chain.from_iterable(chain.from_iterable(had))
    after = chain.from_iterable(line["keys"] for rank in rest for line in rank)
    assert sorted([*before, *after]) == keys
