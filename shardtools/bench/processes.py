"""Fresh processes in groups of their own: what each is started with, whether it has ended, and the end of all it started.

Of other systems than Linux it is not known which processes a group has: they are signalled, and not waited for.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress

THREAD_VARIABLES = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1") | {
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""One thread for each library that would start one a core in every process, so that sides differ in their data alone."""
_LONGEST_FOLDER = 107 - len("/pymp-12345678/listener-12345678")
_SHORT_FOLDER = "/tmp"
_POLL_SECONDS = 0.01
_KILLED_SECONDS = 5.0
"""In which killed processes are gone, unless the kernel holds them."""


def private_folder() -> str:
    """A new folder for a process's temporary files, in ``/tmp`` where the path of the usual one is too long.

    Workers hand batches over through sockets in it, whose paths the kernel takes up to 107 bytes of; longer, no batch ever comes.
    """
    folder = tempfile.mkdtemp(prefix="shardtools-bench-")
    if len(os.fsencode(folder)) <= _LONGEST_FOLDER or not os.access(_SHORT_FOLDER, os.W_OK):
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="shardtools-bench-", dir=_SHORT_FOLDER)


def exit_code(process: "subprocess.Popen[bytes]") -> int | None:
    """None while it runs, minus the signal that ended it. It stays a zombie where it can: until its group is ended nobody else may get
    its number.
    """
    if not hasattr(os, "waitid"):
        return process.poll()
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def all_processes() -> Iterator[tuple[int, str, int]]:
    """Process, state, group."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError, ValueError, IndexError):
            if name.isdecimal():
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    words = file.read().rpartition(")")[2].split()
                    yield int(name), words[0], int(words[2])


def group_members(group: int) -> list[int]:
    """Processes of a group that still run; ended ones nobody took note of are not counted."""
    return [pid for pid, state, of in all_processes() if of == group and state not in "ZX"]


def wait_for_group(group: int, seconds: float) -> None:
    """Until no process of the group runs, or time is up."""
    latest = time.monotonic() + seconds
    while group_members(group) and time.monotonic() <= latest:
        time.sleep(_POLL_SECONDS)


def end_group(group: int, grace_seconds: float = 0.0) -> None:
    """End the processes of a group: by SIGTERM, and those that are there after the grace by SIGKILL; see them gone.

    The group's first process must not have been waited for yet: while it is there, dead or alive, nobody else gets its number.
    """
    if grace_seconds > 0:
        _signal_group(group, signal.SIGTERM)
        wait_for_group(group, grace_seconds)
    _signal_group(group, signal.SIGKILL)
    wait_for_group(group, _KILLED_SECONDS)


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
