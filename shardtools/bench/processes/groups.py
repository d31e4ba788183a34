"""Fresh processes in groups of their own: what each is started with, whether it has ended, and the end of all it started.

Of other systems than Linux it is not known which processes a group has: they are signalled, and not waited for.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from shardtools.bench.counters.process import ProcessStat, parse_stat
from shardtools.bench.not_measured import Unknown, read_text

THREAD_VARIABLES = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1") | {
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""One thread for each library that would start one a core in every process, so that sides differ in their data alone."""
_POLL_SECONDS = 0.01
_FROZEN_SECONDS = 1.0
"""In which processes have stopped, unless the kernel holds them."""


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


def all_processes() -> Iterator[tuple[int, ProcessStat]]:
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            with suppress(Unknown):
                yield int(name), parse_stat(read_text(f"/proc/{name}/stat"))


def group_members(group: int) -> list[int]:
    """Processes of a group that still run; ended ones nobody took note of are not counted."""
    return [pid for pid, stat in all_processes() if stat.group == group and stat.state not in "ZX"]


def wait_for_group(group: int, seconds: float) -> None:
    """Until no process of the group runs, or time is up."""
    latest = time.monotonic() + seconds
    while group_members(group) and time.monotonic() <= latest:
        time.sleep(_POLL_SECONDS)


def freeze(pids: Callable[[], Iterable[int]]) -> list[int]:
    """Stop processes and all they start meanwhile, so that what they have open stays as it is seen. Returns who they are."""
    latest = time.monotonic() + _FROZEN_SECONDS
    frozen: set[int] = set()
    while (running := set(pids()) - frozen) and time.monotonic() <= latest:
        for pid in running:
            signal_one(pid, signal.SIGSTOP)
        stopped = {pid for pid, stat in all_processes() if stat.state in "TtZX"}
        frozen |= running & stopped
        if not running <= stopped:
            time.sleep(_POLL_SECONDS / 10)
    return sorted(pids())


def signal_one(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
