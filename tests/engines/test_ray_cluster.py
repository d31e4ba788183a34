"""A cluster of three nodes publishes what one process does, also when a node is lost; stops a node that sees other files than the rest."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ray_clusters import STORE_BYTES, Lent, Lively, cluster
from watching import wait_until

from shardtools import partitions
from shardtools.build.run import Listener
from shardtools.engines import Report
from shardtools.errors import StorageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sources.jsonl import Jsonl

pytest.importorskip("ray", reason="ray is not installed: the extra `ray` has it")
pytestmark = pytest.mark.slow
SHARD_BYTES = 20480
FORMATS = {"wds": Wds(), "mds": Mds(hashes=("sha1",))}


def where(_: int, __: Report) -> str:
    """The node that runs it."""
    import ray

    time.sleep(0.05)
    return str(ray.get_runtime_context().get_node_id())


@contextmanager
def stranger(lively: Lively, hidden: Path) -> Iterator[None]:
    """A node more, that sees an empty folder in place of ``hidden``, as a machine that has not mounted it."""
    script = f"mount -t tmpfs none '{hidden}' && exec '{sys.executable}' -m ray.scripts.scripts start --address={lively.cluster.address} "
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f"{script} --node-name={hidden.name} --num-cpus=2 --object-store-memory={STORE_BYTES} --block",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        with lively.engine:
            import ray

            while hidden.name not in [node["NodeName"] for node in ray.nodes() if node["Alive"]]:
                assert process.poll() is None, process.communicate()[0]
                time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def three() -> Iterator[Lively]:
    """Three nodes on this machine."""
    with cluster(3, Path(__file__).parent) as lively:
        yield lively


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch):
    """Partitions of 32 KiB, so that little input has many."""
    monkeypatch.setattr(partitions, "MIN_PARTITION_BYTES", 32 << 10)


@pytest.fixture
def source(tree) -> Path:
    """300 samples of two files."""
    numbers = random.Random(3)
    return tree({f"{i % 5}/{i:04d}.{kind}": numbers.randbytes(numbers.randint(0, 2000)) for i in range(300) for kind in ("bin", "dat")})


@pytest.fixture
def records(tree) -> Path:
    """1,000 lines of JSON."""
    numbers = random.Random(4)
    lines = [json.dumps({"id": f"k{i}", "text": "x" * numbers.randint(0, 500)}) + "\n" for i in range(1_000)]
    return tree({"a.jsonl": "".join(lines[:400]).encode(), "b.jsonl": "".join(lines[400:]).encode()}, "records")


def test_three_nodes_publish_what_one_process_does(three, source, records, build, digests, tmp_path):
    jobs = [(name, given, seed) for name in FORMATS for given in (source, records) for seed in (None, 5)]
    with three.engine as live:
        assert live.spans_machines
        for number, (name, given, seed) in enumerate(jobs):
            reader = Jsonl(key="id") if given == records else None  # shuffled in two passes
            here, there = (tmp_path / f"{number}-{who}" for who in ("serial", "ray"))
            build(given, here, FORMATS[name], source=reader, shard_bytes=SHARD_BYTES, seed=seed)
            build(given, there, FORMATS[name], source=reader, shard_bytes=SHARD_BYTES, seed=seed, engine=Lent(live))
            assert len(digests(here)) > 10 and digests(there) == digests(here)


def test_work_is_spread_over_the_nodes(three):
    """Nodes on a busy machine take their time to start workers; one that is left out never has any."""

    def is_spread() -> bool:
        nodes: list[str] = []
        live.run(where, range(30), lambda _: None, nodes.append)
        counts = Counter(nodes)
        return len(counts) == 3 and min(counts.values()) >= 5

    with three.engine as live:
        wait_until(is_spread)


def test_what_a_lost_node_had_is_built_again(three, tree, build, digests, capfd, tmp_path):
    source = tree({f"{i:04d}.bin": random.Random(i).randbytes(30_000) for i in range(1_500)})
    build(source, tmp_path / "serial", shard_bytes=1 << 20)
    done, lost = [0], []

    def on_progress(progress) -> None:
        done.append(progress.num_samples)
        if not lost and sum(done) > 300:
            lost.append(True)
            three.lose_node()

    capfd.readouterr()
    result = build(source, tmp_path / "ray", shard_bytes=1 << 20, engine=three.engine, listener=Listener(on_progress=on_progress))
    assert lost and sum(done) == 1_500 and result.manifest.ledger.num_written == 1_500
    assert digests(tmp_path / "ray") == digests(tmp_path / "serial")
    assert capfd.readouterr() == ("", "")
    three.add_node()


@pytest.mark.parametrize("hidden", ["src", "out"])
def test_a_node_that_sees_other_files_ends_the_run_in_one_sentence(three, source, build, one_sentence, tmp_path, hidden):
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode:
        pytest.skip("only root can give a process files of its own")
    (tmp_path / "out").mkdir()
    with stranger(three, tmp_path / hidden):
        with pytest.raises(StorageError, match=f"expected every machine .* to see the .*/{hidden}, with .* in it, got none on ") as caught:
            build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=three.engine)
        one_sentence(caught.value)
    assert list((tmp_path / "out").glob("[!.]*")) == []
