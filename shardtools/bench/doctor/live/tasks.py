"""Processes between two looks, by the names and units of ``pidstat -ru``.

Source: pidstat(1) of sysstat 12; proc_pid_stat(5).
"""

import os
from dataclasses import dataclass
from typing import Any

from shardtools.bench.counters.process import ProcessUse, parse_stat, parse_use, parse_waited
from shardtools.bench.not_measured import Unknown, read_text

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_ENDED = "ZX"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class TaskCounters:
    """Of one process since it began."""

    uid: int
    use: ProcessUse
    waited_ns: int | None
    """None where the kernel does not count."""


@dataclass(frozen=True)
class TaskUse:
    """Of one process in an interval. 100 % is one processor."""

    uid: int
    pid: int
    command: str
    user_pct: float
    system_pct: float
    guest_pct: float
    wait_pct: float | None
    """Ready to run, and no processor was free."""
    last_cpu: int
    minor_faults_per_s: float
    major_faults_per_s: float
    virtual_bytes: int
    rss_bytes: int
    memory_pct: float | None

    @property
    def cpu_pct(self) -> float:
        return self.user_pct + self.system_pct + self.guest_pct

    def as_json(self) -> dict[str, Any]:
        """By the original's names."""
        return {
            "UID": self.uid,
            "PID": self.pid,
            "%usr": self.user_pct,
            "%system": self.system_pct,
            "%guest": self.guest_pct,
            "%wait": self.wait_pct,
            "%CPU": self.cpu_pct,
            "CPU": self.last_cpu,
            "minflt/s": self.minor_faults_per_s,
            "majflt/s": self.major_faults_per_s,
            "VSZ": self.virtual_bytes // 1024,
            "RSS": self.rss_bytes // 1024,
            "%MEM": self.memory_pct,
            "Command": self.command,
        }


def read_tasks(pids: list[int], proc: str) -> dict[int, TaskCounters]:
    """Those that still live; one that has ended and that nobody has waited for does not."""
    found = {}
    for pid in pids:
        try:
            text = read_text(f"{proc}/{pid}/stat")
            if parse_stat(text).state not in _ENDED:
                found[pid] = TaskCounters(os.stat(f"{proc}/{pid}").st_uid, parse_use(text), _waited(proc, pid))
        except (Unknown, OSError):
            continue
    return found


def _waited(proc: str, pid: int) -> int | None:
    try:
        return parse_waited(read_text(f"{proc}/{pid}/schedstat"))
    except Unknown:
        return None


def task_use(pid: int, earlier: TaskCounters, now: TaskCounters, wall_s: float, memory_bytes: int | None) -> TaskUse:
    """``memory_bytes`` of the machine; None: not known."""
    user, system, guest = (b - a for a, b in zip(earlier.use.cpu_ticks, now.use.cpu_ticks, strict=True))
    minor, major = (b - a for a, b in zip(earlier.use.faults, now.use.faults, strict=True))
    waited = None if earlier.waited_ns is None or now.waited_ns is None else now.waited_ns - earlier.waited_ns
    per_s = 100 / _TICKS_PER_SECOND / wall_s
    rss_bytes = now.use.rss_pages * _PAGE_BYTES
    return TaskUse(
        now.uid,
        pid,
        now.use.command,
        (user - guest) * per_s,
        system * per_s,
        guest * per_s,
        None if waited is None else waited / 1e7 / wall_s,
        now.use.last_cpu,
        minor / wall_s,
        major / wall_s,
        now.use.virtual_bytes,
        rss_bytes,
        100 * rss_bytes / memory_bytes if memory_bytes else None,
    )
