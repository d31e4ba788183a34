"""Ray started for one run on this machine: the same bytes, lost workers made good, faults in one sentence, and nothing left behind."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from live_engines import _workers_find_tasks  # noqa: F401 - a fixture for every test
from ray_clusters import Lent, python_path
from watching import processes_with, wait_until

from shardtools import partitions
from shardtools.engines import Progress, Report
from shardtools.engines.ray import Ray
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds

ray = pytest.importorskip("ray", reason="ray is not installed: the extra `ray` has it")
FORMATS = {"wds": Wds(), "mds": Mds(hashes=("sha1",))}


def dies_once(item: tuple[str, int], report: Report) -> int:
    """Ends its worker when it has done half of its work for the first time."""
    folder, number = item
    for _ in range(3):
        time.sleep(0.15)
        report(Progress(1, 0, 1))
    mark = Path(folder, str(number))
    if number % 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    report(Progress(1, 0, 0))
    return number


def nothing(_: int, report: Report) -> None:
    report(Progress(1, 0, 0))


def dies(_: int, __: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def crew():
    """A live engine, started once for these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", python_path(Path(__file__).parent))
        with Ray(2) as live:
            yield live


def test_a_worker_that_is_lost_is_made_good_and_counted_once(crew, tmp_path):
    results: list[int] = []
    reported: list[Progress] = []
    crew.run(dies_once, [(str(tmp_path), number) for number in range(4)], reported.append, results.append)
    assert sorted(results) == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]
    assert [sum(column) for column in zip(*reported, strict=True)] == [16, 0, 12]


def test_a_thousand_tiny_items_cost_little(crew):
    """Some 1.5 ms each where nothing else runs; the bound is what a run of so many partitions may lose by Ray.

    The best hundred of them, since this machine may have other work meanwhile.
    """
    crew.run(nothing, range(10), lambda _: None)
    results: list[None] = []
    taken = []
    for _ in range(10):
        began = time.monotonic()
        crew.run(nothing, range(100), lambda _: None, results.append)
        taken.append(time.monotonic() - began)
    assert min(taken) < 100 * 0.020
    assert len(results) == 1000


@pytest.mark.parametrize("seed", [None, 5], ids=["in order", "shuffled"])
def test_a_build_publishes_what_the_serial_engine_does(crew, tree, build, digests, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(partitions, "MIN_PARTITION_BYTES", 32 << 10)
    numbers = random.Random(3)
    source = tree({f"{i % 5}/{i:04d}.{kind}": numbers.randbytes(numbers.randint(0, 2000)) for i in range(200) for kind in ("bin", "dat")})
    for name, format_ in FORMATS.items():
        build(source, tmp_path / name / "serial", format_, shard_bytes=20480, seed=seed)
        done = build(source, tmp_path / name / "ray", format_, shard_bytes=20480, seed=seed, engine=Lent(crew))
        assert len(done.manifest.shards) > 10
        assert digests(tmp_path / name / "ray") == digests(tmp_path / name / "serial")


@pytest.mark.usefixtures("crew")
def test_a_second_connection_is_refused(one_sentence):
    with pytest.raises(UsageError, match=r"got one; call ray.shutdown\(\) first") as caught, Ray():
        pass
    one_sentence(caught.value)


@pytest.mark.slow
def test_an_item_that_ends_every_worker_ends_the_run(crew, one_sentence):
    with pytest.raises(ShardtoolsError, match="expected a worker of Ray to finish each partition") as caught:
        crew.run(dies, [1], lambda _: None)
    one_sentence(caught.value)


ADDRESSES = {
    "of a client": ("ray://127.0.0.1:10001", "expected --ray-address HOST:PORT of the cluster's head"),
    "no port": ("127.0.0.1", "expected --ray-address HOST:PORT of the cluster's head, or auto, got 127.0.0.1; "),
    "where nothing listens": ("127.0.0.1:{port}", "expected a Ray cluster .* got Connection refused; name one that runs, or leave it out"),
    "that is none": ("nonsense", "expected --ray-address HOST:PORT of the cluster's head, or auto, got nonsense; "),
}
CODE = """
import sys
from shardtools.engines.ray import Ray
from shardtools.errors import ShardtoolsError
try:
    Ray(ray_address=sys.argv[1]).__enter__()
except ShardtoolsError as error:
    print(error)
"""


@pytest.mark.parametrize("case", ADDRESSES)
def test_an_address_without_a_cluster_is_refused_at_once(case):
    address, says = ADDRESSES[case]
    with socket.socket() as closed:  # a port that nobody else takes meanwhile
        closed.bind(("127.0.0.1", 0))
        arguments = [sys.executable, "-c", CODE, address.format(port=closed.getsockname()[1])]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "" and "Errno" not in done.stdout and done.stdout.count("\n") == 1
    assert re.search(says, done.stdout)


NONE_FOUND = """
import ray

def none_found(*_, **__):
    raise ConnectionError("Could not find any running Ray instance. Please set the `--address` flag.")

ray.init = none_found  # on this machine there may be one
"""


def test_auto_where_no_cluster_runs_names_no_flag_of_others():
    done = subprocess.run([sys.executable, "-c", NONE_FOUND + CODE, "auto"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "" and done.stdout.count("\n") == 1
    assert "at --ray-address auto, got none that runs here; name one that runs, or leave it out" in done.stdout


# The end.


@pytest.fixture
def short_folder():
    """For temporary files; sockets in the folder of a test would have paths that are too long."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield folder


ENDS: dict[str, tuple[Any, int]] = {
    "done": (None, 0),
    "Ctrl-C": (lambda process: os.killpg(process.pid, signal.SIGINT), 130),
    "SIGTERM": (lambda process: process.terminate(), -signal.SIGTERM),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ENDS)
def test_a_run_leaves_no_process_and_no_file_however_it_ends(short_folder, tree, tmp_path, case):
    end, code = ENDS[case]
    source = tree({f"{i:05d}.bin": bytes([i % 251]) * 20_000 for i in range(4_000)})
    arguments = [sys.executable, "-m", "shardtools", "pack", str(source), str(tmp_path / "out"), "--to", "wds", "--engine", "ray"]
    environment = {**os.environ, "TMPDIR": short_folder, "HOME": short_folder}
    process = subprocess.Popen(
        [*arguments, "--json"], env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if end is not None:
        wait_until(lambda: process.poll() is not None or list(tmp_path.glob("out/.shardtools/build/*/tmp/*")))
        assert processes_with(short_folder, "cmdline")
        end(process)
    out, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert "Traceback" not in said and "ray" not in said.lower()
    wait_until(lambda: not processes_with(short_folder, "cmdline"), 10)
    assert os.listdir(short_folder) == []
    assert (end is None) == out.startswith("{")
