"""A bench that is ended, by any signal at any moment, leaves no process, no shared memory and no folder; stops machines that fill up.

Each case runs in a mount namespace of its own with a ``/dev/shm`` of its own, so that whatever is left there is the bench's.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from shardtools.bench.processes.folders import private_folder

HERE = Path(__file__).parent
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL]
MOMENTS = ["proof", "import", "rehearsal", "window"]
FAST = {("proof", signal.SIGTERM), ("window", signal.SIGKILL)}

BENCH = """
import sys, tempfile
from shardtools.bench.equality import prove
from shardtools.bench.spec import Layout, Settings, TrialSpec, Workload
from shardtools.bench.trial import run_trial
moment, data, tempfile.tempdir = sys.argv[1:4]
workload = Workload(batch_size=4, decode="trial_faults:" + ("large" if moment in ("import", "window") else "litter_and_hang"))
layout = Layout(data, "files", "torch")
if moment == "proof":
    prove(layout, workload, Settings(2))
else:
    run_trial(TrialSpec(layout, workload, Settings(2), cache="warm", min_seconds=60), lambda: print("prepared", flush=True))
"""

REFEREE = """
import glob, json, os, resource, signal, subprocess, sys, time
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
moment, data, folder, number, delay = sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6])
bench = subprocess.Popen([sys.executable, "-c", sys.argv[1], moment, data, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

def ours():
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            text = open(f"/proc/{name}/environ", "rb").read()
            state = open(f"/proc/{name}/stat", "rb").read().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if b"TMPDIR=" + folder.encode() in text and state != b"Z" and int(name) != os.getpid():
            found.append(int(name))
    return found

def wait_until(is_so):
    latest = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < latest and bench.poll() is None
        time.sleep(0.02)

if moment == "window":
    assert bench.stdout.readline() == b"prepared\\n"
elif moment == "import":
    wait_until(ours)
else:
    wait_until(lambda: glob.glob(folder + "/*/litter"))
time.sleep(delay)
bench.send_signal(number)
code, began = bench.wait(), time.monotonic()
while (ours() or os.listdir(folder)) and time.monotonic() - began < 60:
    time.sleep(0.05)
print(json.dumps({"code": code, "processes": ours(), "files": os.listdir(folder), "shm": os.listdir("/dev/shm")}))
"""


def ended(moment: str, number: signal.Signals, data: Path, delay: float) -> dict[str, Any]:
    """What is left of a bench that gets a signal so many seconds after the moment began."""
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as folder:  # short: see ``private_folder``
        command = ["unshare", "-m", sys.executable, "-c", REFEREE, BENCH, moment, str(data), folder, str(int(number)), str(delay)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HERE)})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.train
@pytest.mark.skipif(sys.platform != "linux", reason="what is left of a trial is told from /proc")
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param(moment, number, marks=() if (moment, number) in FAST else pytest.mark.slow, id=f"{number.name}-{moment}")
        for moment in MOMENTS
        for number in SIGNALS
    ],
)
def test_a_bench_that_is_ended_leaves_nothing(moment: str, number: signal.Signals, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a mount namespace of one's own needs root")
    for i in range(64):
        (tmp_path / f"{i:03d}.bin").write_bytes(bytes([i]) * 100)
    found = ended(moment, number, tmp_path, delay=1.5 if moment == "window" else 0.3)
    assert found == {"code": -number, "processes": [], "files": [], "shm": []}


def test_a_folder_that_a_killed_bench_left_goes_with_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> None:
    """One that is held, or was made this moment, or is nobody's of ours, stays."""
    tmp_path_factory.getbasetemp()  # pytest's own is made before
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        old = time.time() - 3600
        for name in ("shardtools-bench-left", "shardtools-bench-held", "shardtools-bench-young", "others-left"):
            os.mkdir(f"{place}/{name}")
            Path(place, name, "file").touch()
            if not name.endswith("young"):
                os.utime(f"{place}/{name}", (old, old))
        holding = os.open(f"{place}/shardtools-bench-held", os.O_RDONLY)
        fcntl.flock(holding, fcntl.LOCK_EX)
        with private_folder() as folder:
            left = sorted(set(os.listdir(place)) - {os.path.basename(folder)})
            assert left == ["others-left", "shardtools-bench-held", "shardtools-bench-young"]
        os.close(holding)
        assert not os.path.exists(folder)
