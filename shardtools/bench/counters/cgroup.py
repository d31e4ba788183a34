"""What a control group allows its processes, version 1 and 2, and mixtures of both.

A limit binds all groups below it, so every group from the process's own up to the root that can be seen is asked.
Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html,
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

import math
import os
from dataclasses import dataclass
from typing import Literal

from shardtools.bench.counters.device import Roots
from shardtools.bench.counters.mounts import Mount, parse_mountinfo
from shardtools.bench.not_measured import Unknown, read_text

_NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page below 2^63."""


@dataclass(frozen=True)
class Group:
    """Where one controller's files of a process are."""

    version: Literal[1, 2]
    folders: tuple[str, ...]
    """The process's own group, then those around it, the outermost that can be seen last."""


@dataclass(frozen=True)
class Quota:
    """Processor time a group may use."""

    cpus: float
    folder: str
    """The group that sets it."""


@dataclass(frozen=True)
class Throttling:
    """Since the group was made."""

    num_periods: int
    num_throttled: int
    throttled_s: float


@dataclass(frozen=True)
class MemoryLimit:
    """Of the tightest group around a process."""

    limit_bytes: int
    used_bytes: int
    """What the kernel could not simply drop: the page cache that is not in use is left out."""


def group_of(controller: str, roots: Roots, pid: int | Literal["self"] = "self") -> Group:
    """Raises Unknown where the controller is mounted nowhere that can be seen."""
    mounts = parse_mountinfo(read_text(f"{roots.proc}/self/mountinfo"))
    path_of = parse_cgroups(read_text(f"{roots.proc}/{pid}/cgroup"))
    for mount in mounts:
        if mount.fs == "cgroup" and controller in mount.options.split(",") and controller in path_of:
            return Group(1, _folders(mount, path_of[controller]))
    for mount in mounts:
        if mount.fs == "cgroup2" and "" in path_of and _controls(mount, controller):
            return Group(2, _folders(mount, path_of[""]))
    raise Unknown(f"no control group of {controller} is mounted here")


def parse_cgroups(text: str) -> dict[str, str]:
    """Path of a process's group by controller; the empty name is version 2."""
    found = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, separator, path = rest.partition(":")
        if not number.isdecimal() or not separator:
            raise Unknown("/proc/PID/cgroup is not as expected")
        for name in names.split(","):
            found[name] = path
    return found


def _controls(mount: Mount, controller: str) -> bool:
    try:
        return controller in read_text(f"{mount.point}/cgroup.controllers").split()
    except Unknown:
        return False


def _folders(mount: Mount, path: str) -> tuple[str, ...]:
    """A container sees only what lies below the mount's root; the path may be named from the host's root, or lie outside."""
    root = mount.root.rstrip("/")
    inside = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else ""
    parts = [part for part in inside.split("/") if part and part != ".."]
    folders = ["/".join([mount.point.rstrip("/"), *parts[:depth]]) for depth in range(len(parts), -1, -1)]
    there = tuple(folder for folder in folders if os.path.isdir(folder))
    if not there:
        raise Unknown(f"the control groups mounted at {mount.point} cannot be seen")
    return there


def quota_of(group: Group) -> Quota | None:
    """The tightest; None where no group sets one."""
    found = [quota for folder in group.folders if (quota := _quota(group.version, folder))]
    return min(found, key=lambda quota: quota.cpus, default=None)


def _quota(version: int, folder: str) -> Quota | None:
    try:
        if version == 2:
            cpus = parse_cpu_max(read_text(f"{folder}/cpu.max"))
        else:
            quota, period = (read_text(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
            cpus = parse_cfs(quota, period)
    except Unknown:
        # The root has no such file, and a group whose controller is off neither.
        return None
    return None if cpus is None else Quota(cpus, folder)


def parse_cpu_max(text: str) -> float | None:
    """Processors ``max 100000`` or ``150000 100000`` allows; None: no limit."""
    quota, *period = text.split() or ["max"]
    if quota == "max":
        return None
    try:
        return int(quota) / int(period[0])
    except (IndexError, ValueError, ZeroDivisionError):
        raise Unknown("cpu.max is not as expected") from None


def parse_cfs(quota: str, period: str) -> float | None:
    """The same of version 1, whose "no limit" is -1."""
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        raise Unknown("cpu.cfs_quota_us is not as expected") from None


def cpus_effective(affinity: int, quota: Quota | None) -> int:
    """Processors that can be used at once: those the process may run on, or as many as the quota pays for."""
    return max(1, affinity if quota is None else min(affinity, math.ceil(quota.cpus)))


def throttling_of(quota: Quota | None) -> Throttling:
    """Of the group with the tightest quota; none where there is no quota. Raises Unknown where it is not counted."""
    if quota is None:
        return Throttling(0, 0, 0.0)
    return parse_throttling(read_text(f"{quota.folder}/cpu.stat"))


def parse_throttling(text: str) -> Throttling:
    """``cpu.stat`` of either version: version 1 counts nanoseconds, version 2 microseconds."""
    values = dict(words for line in text.splitlines() if len(words := line.split()) == 2)
    try:
        seconds = int(values["throttled_usec"]) / 1e6 if "throttled_usec" in values else int(values["throttled_time"]) / 1e9
        return Throttling(int(values["nr_periods"]), int(values["nr_throttled"]), seconds)
    except (KeyError, ValueError):
        raise Unknown("cpu.stat does not count throttling") from None


def memory_limit_of(group: Group) -> MemoryLimit | None:
    """The group with the least room; None where none has a limit."""
    found = [limit for folder in group.folders if (limit := _memory_limit(group.version, folder))]
    return min(found, key=lambda limit: limit.limit_bytes - limit.used_bytes, default=None)


def most_processes_of(group: Group) -> int | None:
    """Processes and threads the tightest group may have, of the controller ``pids``; None where none has a limit."""
    found = []
    for folder in group.folders:
        try:
            text = read_text(f"{folder}/pids.max").strip()
        except Unknown:
            continue
        found += [int(text)] if text.isdecimal() else []
    return min(found, default=None)


def _memory_limit(version: int, folder: str) -> MemoryLimit | None:
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    try:
        limit = read_text(f"{folder}/{names[0]}").strip()
        if not limit.isdecimal() or int(limit) >= _NO_LIMIT_BYTES:
            return None
        values = dict(words for line in read_text(f"{folder}/memory.stat").splitlines() if len(words := line.split()) == 2)
        used = int(read_text(f"{folder}/{names[1]}")) - int(values.get(names[2], 0))
    except (Unknown, ValueError):
        return None
    return MemoryLimit(int(limit), max(0, used))
