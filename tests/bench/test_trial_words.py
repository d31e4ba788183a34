"""How a trial ended, from its exit and its words; stops a full /dev/shm or a limit on descriptors from being reported as some error.

The texts are those torch and Python print.
"""

import signal
import subprocess
import sys

import pytest

from shardtools.bench.trial import instrumentation_overhead
from shardtools.bench.trial._words import End, judged
from shardtools.bench.user_faults import sentence_of

SHM = "RuntimeError: unable to allocate shared memory(shm) for file </torch_123_4_5>: No space left on device (28)"
RESIZE = "RuntimeError: unable to write to file </torch_77_1>: No space left on device (28)"
BUS = (
    "RuntimeError: DataLoader worker (pid 87) is killed by signal: Bus error. "
    "It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit."
)
ANCDATA = "RuntimeError: received 0 items of ancdata"
EMFILE = "OSError: [Errno 24] Too many open files: '/dev/null'"
LATE = "RuntimeError: DataLoader timed out after 25 seconds"
DISK = "OSError: [Errno 28] No space left on device: '/data/x'"
KILLED = "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed."


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        (End(0, "ok", "", SHM, 60), "ok", ""),
        (End(2, "refused", "not run: shared memory", "", 60), "refused", "not run"),
        (End(1, "error", SHM, "", 60), "oom_shm", "shared memory was full"),
        (End(1, "error", LATE, SHM, 60), "oom_shm", "unable to allocate shared memory"),
        (End(1, "error", RESIZE, "", 60), "oom_shm", "larger /dev/shm"),
        (End(1, "error", BUS, "", 60), "oom_shm", "Bus error"),
        (End(-signal.SIGBUS, None, "", "", 60), "oom_shm", "SIGBUS"),
        (End(None, None, "", "", 60, shm_share=0.97), "oom_shm", "/dev/shm is full"),
        (End(1, "error", LATE, "", 60, shm_share=0.97), "oom_shm", "/dev/shm is full"),
        (End(1, "error", ANCDATA, "", 60), "fd", "ancdata"),
        (End(1, "error", LATE, EMFILE, 60), "fd", "Too many open files"),
        (End(1, "error", LATE, "", 60, shm_share=0.3), "hang", "timed out after 25 seconds"),
        (End(None, None, "", "reading x\n", 60), "hang", "within 60 seconds, and its last words were: reading x"),
        (End(1, "error", "ValueError: bad", "", 60), "error", "ValueError: bad"),
        (End(1, "error", DISK, "", 60), "error", "/data/x"),
        (End(1, "error", KILLED, "", 60), "error", "Killed"),
        (
            End(1, "error", "RuntimeError: exited", KILLED, 60),
            "error",
            "exited (RuntimeError: DataLoader worker",
        ),
        (End(-signal.SIGKILL, None, "", "", 60), "error", "the signal SIGKILL without a result"),
        (End(1, None, "", "ImportError: no torch", 60), "error", "exit code 1 without a result, and its last words were: ImportError"),
    ],
)
def test_ends(end: End, status: str, words: str) -> None:
    found, message = judged(end)
    assert (found, words in message) == (status, True), message


def test_what_a_worker_raised_is_told_in_one_line() -> None:
    text = (
        "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File x\n    y()\nKeyError: 'a'\n"
    )
    assert sentence_of(RuntimeError(text)) == "KeyError: 'a'"
    assert sentence_of(ValueError("")) == "ValueError"


@pytest.mark.parametrize(
    ("plain", "timed", "timers_share", "share", "words"),
    [
        ([100.0], [98.5], 0.004, -0.015, ""),
        ([100.0], [101.9], None, 0.019, ""),
        ([100.0, 101.0, 99.0], [95.0, 95.5, 94.5], 0.004, -0.05, "with it the rate differs by -5.0 %, more than 2 %"),
        ([100.0, 90.0, 110.0], [95.0], 0.004, -0.05, ""),
        ([100.0, 90.0, 110.0], [101.0], 0.031, 0.01, "timers took 3.1 % of the workers' time, more than 2 %"),
    ],
)
def test_the_cost_of_instruments(plain: list[float], timed: list[float], timers_share: float | None, share: float, words: str) -> None:
    """Between trials a cost is believed only above their spread; the timers' own is counted."""
    found = instrumentation_overhead(plain, timed, timers_share)
    assert found.share == pytest.approx(share)
    assert found.timers_share == timers_share
    assert found.warning == (words and f"instrumentation disturbs this workload: {words}")


def test_the_supervising_side_loads_no_torch() -> None:
    """The command starts trials; only their processes pay for torch."""
    probe = "import sys, shardtools.bench.trial; print(*sorted({'torch', 'webdataset', 'streaming', 'PIL'} & set(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert finished.stdout == "\n"
