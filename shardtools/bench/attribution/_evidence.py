"""Counters that were watched meanwhile: whether they say the same as the intervention."""

import os
import resource
from typing import Any

from shardtools.bench.attribution._timers import Timed
from shardtools.bench.attribution.result import Fact
from shardtools.bench.counters import host
from shardtools.bench.not_measured import Unknown
from shardtools.bench.trial import TrialResult

OF_CEILING = 0.70
_BLOCKED = 0.50
PRESSURE = 0.30
_BUSY = 0.85
_THROTTLED = 0.05
_SHM_FULL = 0.90
_IDLE = 0.70
_FLOOR = 0.50
_MANY_DESCRIPTORS = 0.80

Told = tuple[Fact, bool]
"""A fact, and whether it supports the verdict."""


def corroborate(stage: str, baseline: TrialResult | None, found: Timed | None, ceilings: dict[str, Any] | None) -> list[Told]:
    """What was counted during a baseline trial and one with timers, as far as it bears on the stage."""
    told = [] if found is None or stage not in found.shares else [(_timer(stage, found), False)]
    watched = {} if baseline is None else baseline.watched
    counters: dict[str, Any] = watched.get("counters") or {}
    if stage == "storage":
        return told + _of_storage(counters, found, ceilings)
    if stage == "transfer":
        return told + _of_transfer(watched, baseline, found)
    return told + of_processors(counters, baseline)


def _timer(stage: str, found: Timed) -> Fact:
    share = found.shares[stage]
    return Fact("timer", {"stage": stage, "share": share, "blocked_share": found.blocked[stage] / share if share else 0.0})


def _of_storage(counters: dict[str, Any], found: Timed | None, ceilings: dict[str, Any] | None) -> list[Told]:
    told: list[Told] = []
    pairs = {"MBps": ("disk_read_MBps", "disk_MBps"), "iops": ("disk_iops", "disk_iops")}
    disk: dict[str, float | None] = {}
    shares = []
    for name, (counter, ceiling) in pairs.items():
        used, most = counters.get(counter), (ceilings or {}).get(ceiling)
        disk |= {name: used, f"ceiling_{name}": most}
        if used is not None and most:
            shares.append(used / most)
    if shares:
        told.append((Fact("disk", {**disk, "share": max(shares)}), max(shares) >= OF_CEILING))
    if found is not None:
        blocked = found.blocked.get("storage", 0.0)
        told.append((Fact("blocked", {"share": blocked}), blocked >= _BLOCKED))
    pressure = counters.get("psi_io_share")
    if pressure is not None:
        told.append((Fact("pressure", {"resource": "io", "share": pressure}), pressure >= PRESSURE))
    return told


def of_processors(counters: dict[str, Any], baseline: TrialResult | None) -> list[Told]:
    """Processors in use, by whomever where the trial may use all of the machine's: those that others use are no less missing."""
    told: list[Told] = []
    used, host_share = counters.get("cpu_util"), _host_share(counters)
    if used is not None and baseline is not None:
        worker = used / max(1, baseline.spec.settings.num_workers)
        is_busy = worker >= _BUSY or (host_share is not None and host_share >= _BUSY)
        values = {"worker_share": worker, "host_share": host_share, "others_share": _others_share(counters, host_share)}
        told.append((Fact("cpu", values), is_busy))
    throttled = counters.get("cpu_throttled_share")
    if throttled:
        told.append((Fact("throttled", {"share": throttled}), throttled >= _THROTTLED))
    return told


def _host_share(counters: dict[str, Any]) -> float | None:
    names = ("cpu_util", "cpu_util_share", "host_cpu_util")
    used, share, busy = (None if counters.get(name) is None else float(counters[name]) for name in names)
    if not used or not share or busy is None:
        return share
    num_cpus = round(used / share)
    return max(share, min(1.0, busy / num_cpus)) if num_cpus == os.cpu_count() else share


def _others_share(counters: dict[str, Any], host_share: float | None) -> float | None:
    """What is in use and not by the trial."""
    own = counters.get("cpu_util_share")
    return None if host_share is None or own is None or counters.get("host_cpu_util") is None else max(0.0, host_share - float(own))


def _of_transfer(watched: dict[str, Any], baseline: TrialResult | None, found: Timed | None) -> list[Told]:
    told: list[Told] = []
    if found is not None:
        values = {"utilisation": found.utilisation, "floor_share": found.floor_share}
        is_main = found.utilisation < _IDLE or (found.floor_share is not None and found.floor_share >= _FLOOR)
        told.append((Fact("transfer", values), is_main))
    peaks: dict[str, Any] = watched.get("peaks") or {}
    if peaks.get("shm") is not None and (size := _shm_bytes()):
        share = peaks["shm"] / size
        told.append((Fact("shm", {"peak_bytes": peaks["shm"], "size_bytes": size, "share": share}), share >= _SHM_FULL))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if peaks.get("fd") is not None and baseline is not None:
        values = {"peak": peaks["fd"], "limit": limit, "tensors": baseline.found["batch"]["tensors"]}
        told.append((Fact("descriptors", values), limit > 0 and peaks["fd"] >= _MANY_DESCRIPTORS * limit))
    return told


def _shm_bytes() -> int | None:
    try:
        return host.shared_memory().size_bytes
    except Unknown:
        return None
