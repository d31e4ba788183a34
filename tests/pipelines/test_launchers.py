"""Stops a launcher that gives an array job's tasks the wrong parts, starts another program than it says, or needs the right order."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUM_PAIRS = 60
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the launchers are bash scripts")

CLUSTER = """
import sys
from ray.cluster_utils import Cluster

store = {"object_store_memory": 80 << 20, "num_cpus": 1}
cluster = Cluster(initialize_head=True, head_node_args={**store, "include_dashboard": False})
cluster.add_node(**store)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than one partition's worth of pairs: two of 16 MiB and a rest."""
    folder = tmp_path_factory.mktemp("launchers") / "images"
    folder.mkdir()
    for i in range(NUM_PAIRS):
        (folder / f"{i:03d}.jpg").write_bytes(b"\xff\xd8\xff\xe0" + hashlib.sha256(b"%d" % i).digest() * 20_000)
        (folder / f"{i:03d}.json").write_text(f'{{"i": {i}}}')
    return folder


def unscheduled() -> dict[str, str]:
    """The environment without what schedulers, or an engine of an earlier test, left in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RAY_"))}


def launch(script: str, *arguments: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a launcher from another folder than the project's."""
    command = ["bash", str(ROOT / "pipelines" / script), *map(str, arguments)]
    options = {**unscheduled(), "PYTHON": sys.executable, **environment}
    return subprocess.run(command, cwd="/", env=options, capture_output=True, text=True, check=False)


def task(number: int, first: int, count: int, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """One task of an array job, as Slurm starts it."""
    array = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_MIN": str(first), "SLURM_ARRAY_TASK_COUNT": str(count)}
    return launch("slurm.sh", *arguments, SLURM_SUBMIT_DIR=str(ROOT), SLURM_CPUS_PER_TASK="1", **array)


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def expected(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one process packs."""
    folder = tmp_path_factory.mktemp("expected") / "out"
    command = [sys.executable, "-m", "pipelines.image_folder", images, folder, "--engine", "serial"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return contents(folder)


@pytest.mark.parametrize(("first", "order"), [(1, (3, 1, 2)), (0, (0, 2, 1))])
def test_the_tasks_of_an_array_pack_what_one_process_packs(images, expected, tmp_path, first, order):
    done = [task(number, first, 3, "image_folder", images, tmp_path / "out") for number in order]
    assert [one.returncode for one in done] == [0, 0, 0], [one.stderr for one in done]
    assert [one.stdout.partition(" done;")[0] for one in done[:2]] == [f"part {number - first + 1}/3" for number in order[:2]]
    assert done[2].stdout.startswith(f"{NUM_PAIRS} samples in ")
    again = task(order[0], first, 3, "image_folder", images, tmp_path / "out")
    assert again.returncode == 0 and again.stdout.endswith("already complete\n")
    assert contents(tmp_path / "out") == expected and len([name for name in expected if name.endswith(".tar")]) >= 3


def test_an_array_with_gaps_is_refused(tmp_path):
    done = task(5, 1, 2, "image_folder", "nope", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: expected an array without gaps, such as --array=1-2, got task 5\n"


def test_a_fault_of_the_job_is_the_fault_of_the_task(tmp_path):
    done = task(1, 1, 2, "image_folder", tmp_path / "nope", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.startswith("error: expected a file or folder to read")


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("slurm.sh", [], "error: expected NAME SRC DST"),
        ("slurm.sh", ["chats"], "error: expected an array job, got another: sbatch --array"),
        ("ray.sh", [], "error: expected NAME SRC DST"),
        ("ray.sh", ["no_such_job"], f"error: expected a job at {ROOT}/pipelines/no_such_job.py, got none"),
    ],
)
def test_what_is_missing_is_said(script, arguments, said):
    done = launch(script, *arguments)
    assert done.returncode == 2 and done.stderr.startswith(said) and done.stdout == ""


def test_a_task_that_was_submitted_from_another_folder_says_so(tmp_path):
    array = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "1"}
    done = launch("slurm.sh", "image_folder", "src", "out", SLURM_SUBMIT_DIR=str(tmp_path), **array)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"expected a job at {tmp_path}/pipelines/image_folder.py, got none; " in done.stderr and "from the folder of" in done.stderr


@pytest.fixture
def cluster() -> Iterator[dict[str, str]]:
    """Two nodes on this machine; the environment that leads to them."""
    pytest.importorskip("ray", reason="ray is not installed: the extra `ray` has it")
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp", ignore_cleanup_errors=True) as folder:
        environment = {**unscheduled(), "RAY_TMPDIR": folder, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLUSTER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdin is not None
            address = process.stdout.readline().strip()
            yield {"RAY_TMPDIR": folder, "RAY_ADDRESS": address}
            process.stdin.close()
            process.wait(60)


@pytest.mark.slow
def test_a_ray_cluster_packs_what_one_process_packs(images, expected, cluster, tmp_path):
    done = launch("ray.sh", "image_folder", images, tmp_path / "out", **cluster)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{NUM_PAIRS} samples in ") and contents(tmp_path / "out") == expected
