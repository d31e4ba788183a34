"""``doctor`` as it is typed: findings first, 80 columns, codes of the house, an end by Ctrl-C; stops a check-up that itself falls ill.

Small limits are real ones: a 16 MB /dev/shm in a mount namespace of its own, 64 descriptors.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from s3_stores import client_of

ROOT = Path(__file__).parents[2]
WITHOUT_TORCH = """
import sys
from importlib import metadata

version_of = metadata.version

def version(name):
    if name in ("torch", "torchvision", "webdataset", "mosaicml-streaming"):
        raise metadata.PackageNotFoundError(name)
    return version_of(name)

metadata.version = version

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "webdataset", "streaming", "pynvml"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Blocker())
from shardtools.cli import main
sys.argv = ["shardtools", "doctor", *sys.argv[1:]]
main()
"""
COMMAND = [sys.executable, "-m", "shardtools", "doctor"]
LIGHT = [sys.executable, "-c", WITHOUT_TORCH]
"""The same where torch is not installed, which spares the time to import it."""
GIVEN = ["--batch-bytes", "10MB"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*arguments: str, command: list[str] | None = None, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    whole = [*(command or COMMAND), *arguments]
    return subprocess.run(whole, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)


def findings(report: dict[str, Any], topic: str) -> list[tuple[str, str]]:
    return [(finding["level"], finding["sentence"]) for finding in report["findings"] if finding["topic"] == topic]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``images/`` of small files and ``shards/`` made of them, as the examples name them."""
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "images").mkdir()
    for i in range(100):
        (folder / f"images/{i:03}.bin").write_bytes(bytes([i]) * (1000 + i))
    done = run("images", "shards", "--to", "wds", command=[sys.executable, "-m", "shardtools", "pack"], cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_examples_of_the_help_work(place: Path) -> None:
    shown = run("--help").stdout
    examples = [line.strip() for line in shown.splitlines() if line.startswith("  shardtools doctor ")]
    assert len(examples) == 2
    for example in examples:
        done = run(*shlex.split(example)[2:], command=LIGHT, cwd=place)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


@pytest.mark.train
@pytest.mark.slow
def test_batches_are_measured_on_the_data(place: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra train")
    done = run("images", "shards", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    sizes = {named["name"]: named["bytes"] for named in report["batches"]}
    # 64 files of 1000 + i bytes in one tensor, and 64 lengths of 8 bytes.
    assert sizes == {"files": 64_000 + sum(range(64)) + 64 * 8}
    assert [entry["uri"] for entry in report["environment"]["storage"]] == ["images", "shards"]
    ((level, sentence),) = findings(report, "data")
    assert level == "warning" and "shards has 1 shard for 8 workers" in sentence


def test_every_line_fits_a_terminal_and_every_command_is_there(place: Path) -> None:
    done = run("images", *GIVEN, command=LIGHT, cwd=place)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert lines[0].startswith("shardtools doctor   ")
    heads = [line.partition(":")[0] for line in lines if line.startswith("$ ")]
    expected = ["$ iostat -xz", "$ pidstat -u", "$ pidstat -r", "$ ipcs -m", "$ df -h /dev/shm", "$ nvidia-smi dmon"]
    assert [head for head in expected if head != "$ pidstat -r"] == [head for head in heads if head != "$ pidstat -r"]


def test_it_ends_its_findings_with_what_to_type_next(place: Path) -> None:
    """Which it does not know itself: what limits the loader."""
    lines = run("images", *GIVEN, command=LIGHT, cwd=place).stdout.splitlines()
    begin = lines.index("To measure what limits a loader of it, and which settings it wants:")
    assert lines[begin + 1] == "    shardtools bench images --matrix"
    assert begin < next(number for number, line in enumerate(lines) if line.startswith("What W workers"))
    assert not any("shardtools bench" in line for line in run(*GIVEN, command=LIGHT).stdout.splitlines())


def test_the_report_has_a_reason_for_what_is_not_there() -> None:
    report = json.loads(run(*GIVEN, "--json", command=LIGHT).stdout)
    assert report["schema"] == "shardtools.doctor/1"
    assert set(report) == {"schema", "findings", "batches", "limits", "table", "buckets", "now", "environment", "machine", "not_measured"}
    assert len(report["table"]) == 12
    told = {entry["metric"] for entry in report["not_measured"] + report["environment"]["not_measured"] + report["now"]["not_measured"]}
    for name in ("ipcs", "df", "dmon"):
        assert report["now"][name] is not None or name in told
    assert report["environment"]["governor"] is not None or "governor" in told
    assert report["environment"]["torch_process"] is not None or "torch_process" in told


WRONG = {
    "size": ["--batch-bytes", "many"],
    "workers": ["--num-workers", "1,x"],
    "factor": ["--prefetch-factor", "0"],
    "no data": ["nowhere"],
    "no storage": ["gopher://a/b"],
    "no process": ["--pid", "4194305"],
    "watch": ["--watch", "images"],
    "ranks": ["--ranks", "0"],
    "option": ["--nonsense"],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_one_sentence_and_code_2(place: Path, name: str) -> None:
    done = run(*WRONG[name], command=LIGHT, cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")


def in_namespace(script: str) -> "subprocess.CompletedProcess[str]":
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs a mount namespace of its own: root, and util-linux")
    return run("-c", script, command=["unshare", "-m", "sh"])


def test_a_small_shared_memory_is_told_with_the_size_to_ask_for() -> None:
    """64 batches and two more of 10 MB need 660 MB: 1 GiB with half as much again; none fits into 80 % of 16 MB."""
    command = shlex.join([*LIGHT, *GIVEN, "--json"])
    done = in_namespace(f"mount -t tmpfs -o size=16m tmpfs /dev/shm && {command}")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["limits"]["shm_free_bytes"] == 2**24
    assert all("shm" in cell["breaks"] for cell in report["table"])
    level, sentence = findings(report, "W x P")[0]
    assert level == "fault" and "/dev/shm is too small" in sentence
    assert "--shm-size=1g" in sentence or "remount,size=1G" in sentence
    # Nothing gives a second size for the same thing.
    assert json.dumps(report["findings"]).count("enlarge it") + json.dumps(report["findings"]).count("--shm-size") == 1
    assert report["now"]["df"]["size_bytes"] == 2**24


def test_few_descriptors_are_told_and_enough_for_the_doctor_itself() -> None:
    command = shlex.join([*LIGHT, *GIVEN, "--tensors", "5", "--json"])
    done = run("-c", f"ulimit -n 64 && {command}", command=["sh"])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    # 80 % of 64 are 51: ten batches of five tensors fit, eighteen do not.
    breaks = {(cell["num_workers"], cell["prefetch_factor"]): "fds" in cell["breaks"] for cell in report["table"]}
    assert [settings for settings, is_broken in breaks.items() if not is_broken] == [(1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (4, 2)]
    assert any("descriptors run out" in sentence for _, sentence in findings(report, "W x P"))
    assert json.dumps(report["findings"]).count("nofile") == 1


def test_the_core_install_is_enough(place: Path) -> None:
    done = run("images", "--json", command=LIGHT, cwd=place)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    ((level, sentence),) = findings(report, "torch")
    assert level == "note" and "torch is not installed" in sentence
    assert [named["name"] for named in report["batches"]] == ["uint8", "float32"]
    assert {cell["predicted"]["ram_bytes"] for cell in report["table"]} == {None}
    assert "ram_bytes" in {entry["metric"] for entry in report["not_measured"]}


def test_a_bucket_is_asked_how_it_answers(s3_uri: str, s3_store: dict[str, Any]) -> None:
    _, _, bucket, prefix = s3_uri.split("/", 3)
    client_of(s3_store["environment"]).put_object(Bucket=bucket, Key=f"{prefix}/a.bin", Body=b"x" * 10_000)
    done = run(s3_uri, "--json", command=LIGHT)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    ((_, sentence),) = findings(report, "storage")
    assert sentence.startswith(f"{s3_uri} answers a small read in ")
    assert [len(found["read_seconds"]) for found in report["buckets"]] == [7]


# Watching.


def started(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*LIGHT, *GIVEN, *arguments], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_watching_goes_on_until_an_interrupt() -> None:
    with started("--watch", "0.2", "--json", "--pid", str(os.getpid())) as process:
        assert process.stdout is not None
        first, *looks = (json.loads(process.stdout.readline()) for _ in range(3))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in said and len(said.splitlines()) == 1
    assert first["schema"] == "shardtools.doctor/1" and first["now"] is None
    assert "now" in {entry["metric"] for entry in first["not_measured"]}
    assert all(os.getpid() in {row["PID"] for row in look["pidstat"]} for look in looks)
    assert all(look["interval_s"] == pytest.approx(0.2, abs=5) and len(look["time"]) == 8 for look in looks)


def test_watching_ends_with_the_process_that_is_watched() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper, started("--watch", "0.2", "--pid", str(sleeper.pid)) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[-1:] == ["sleep"]:
                break
        sleeper.kill()
        sleeper.wait()
        shown, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")
    assert f"process {sleeper.pid} has ended" in shown


def test_watching_ends_when_nobody_reads() -> None:
    with started("--watch", "0.2") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.returncode == 0


def test_help_needs_nothing_heavy() -> None:
    probe = """
    import atexit, sys
    atexit.register(lambda: print(*sys.modules, file=sys.stderr))
    sys.argv = ["shardtools", "doctor", "--help"]
    from shardtools.cli import main
    main()
    """
    done = run(command=[sys.executable, "-c", textwrap.dedent(probe)])
    assert done.returncode == 0
    assert "shardtools.bench.doctor.diagnosis" in done.stderr.split()
    assert {"torch", "webdataset", "streaming", "PIL", "pyarrow", "boto3"} & set(done.stderr.split()) == set()
