"""The ledger of the machine a measurement was made on: what a reader needs to judge the numbers, or to repeat them."""

import multiprocessing
import os
import platform
import resource
from collections.abc import Callable, Sequence
from typing import Any

from shardtools.bench import versions
from shardtools.bench.counters import cgroup, cpu, host
from shardtools.bench.counters.affinity import allowed_cpus, num_allowed_cpus
from shardtools.bench.counters.device import Roots, device_under, mount_under
from shardtools.bench.counters.gpu import Nvml
from shardtools.bench.not_measured import Reasons, Unknown, read_text
from shardtools.bench.places import place_of

_TELLING_OPTIONS = {"size", "data", "commit", "rsize", "wsize", "nconnect", "vers", "compress", "compress-force"}
"""With a value. Others hold folders, addresses and users' names, which are nobody's business."""


def ledger(uris: Sequence[str], start_method: str | None = None, roots: Roots | None = None) -> dict[str, Any]:
    """``environment`` of a report; ``not_measured`` in it has the reason for every None. ``storage`` has a part for each URI.

    ``start_method`` is what workers are started by; None: this platform's default.
    """
    roots, reasons = roots or Roots(), Reasons()
    quota = reasons.attempt("cgroup", lambda: cgroup.quota_of(cgroup.group_of("cpu", roots)))
    found = {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": reasons.attempt("cpu", lambda: cpu.parse_model(read_text(f"{roots.proc}/cpuinfo"))),
        "governor": reasons.attempt("governor", lambda: cpu.governor(roots)),
        "cpus": os.cpu_count(),
        "cpus_effective": cgroup.cpus_effective(num_allowed_cpus(), quota),
        "affinity": list(allowed_cpus()) or None,
        "cgroup": _group(roots, quota),
        "mem": _memory(roots, reasons),
        "shm": reasons.attempt("shm", _shm),
        "rlimit_nofile": reasons.attempt("rlimit_nofile", _rlimit_nofile),
        "storage": [_storage(uri, roots, reasons) for uri in uris],
        "gpu": reasons.attempt("gpu", gpus) or [],
        "start_method": start_method or default_start_method(),
        **versions.installed(reasons),
    }
    for name in ("affinity", "cpus"):
        if found[name] is None:
            reasons.add(name, "this system does not tell")
    return found | {"not_measured": [missing.as_json() for missing in reasons.listed()]}


def default_start_method() -> str:
    """How this Python starts workers, without settling it as a look at the current one would."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def gpus() -> list[dict[str, Any]]:
    """Raises Unknown where NVML or an accelerator is missing."""
    library = Nvml()
    try:
        return [gpu.as_json() for gpu in library.gpus()]
    finally:
        library.close()


def usable_memory_bytes(roots: Roots | None = None) -> int:
    """What processes started now can still take: available memory, or less where a control group ends sooner.

    Raises Unknown where the machine does not tell.
    """
    roots = roots or Roots()
    available = host.parse_meminfo(read_text(f"{roots.proc}/meminfo"), "MemAvailable")
    limit = _memory_limit(roots)
    return available if limit is None else min(available, max(0, limit.limit_bytes - limit.used_bytes))


def _memory_limit(roots: Roots) -> cgroup.MemoryLimit | None:
    try:
        return cgroup.memory_limit_of(cgroup.group_of("memory", roots))
    except Unknown:
        return None


def _memory(roots: Roots, reasons: Reasons) -> dict[str, int | None]:
    limit = _memory_limit(roots)
    if limit is None:
        reasons.add("mem.cgroup_limit_bytes", "no control group limits memory")
        reasons.add("mem.cgroup_used_bytes", "no control group limits memory")

    def of(name: str) -> Callable[[], int]:
        return lambda: host.parse_meminfo(read_text(f"{roots.proc}/meminfo"), name)

    return {
        "total_bytes": reasons.attempt("mem.total_bytes", of("MemTotal")),
        "available_bytes": reasons.attempt("mem.available_bytes", of("MemAvailable")),
        "cgroup_limit_bytes": limit.limit_bytes if limit else None,
        "cgroup_used_bytes": limit.used_bytes if limit else None,
        "usable_bytes": reasons.attempt("mem.usable_bytes", lambda: usable_memory_bytes(roots)),
    }


def _group(roots: Roots, quota: cgroup.Quota | None) -> dict[str, Any] | None:
    """None, the reason kept by the caller, where no controller of processors is mounted."""
    try:
        group = cgroup.group_of("cpu", roots)
    except Unknown:
        return None
    return {"version": group.version, "path": group.folders[0], "quota_cpus": quota.cpus if quota else "max"}


def _shm() -> dict[str, int]:
    found = host.shared_memory()
    return {"size_bytes": found.size_bytes, "free_bytes": found.free_bytes}


def _rlimit_nofile() -> dict[str, int | str]:
    soft, hard = ("unlimited" if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    return {"soft": soft, "hard": hard}


def _storage(uri: str, roots: Roots, reasons: Reasons) -> dict[str, Any]:
    """The file system and the device that hold a URI's data."""
    place = place_of(uri)
    if place is None:
        reasons.add(f"storage.fs of {uri}", "the data is not on this machine")
        reasons.add(f"storage.device of {uri}", "the data is not on this machine")
        return {"uri": uri, "fs": None, "device": None}
    mount = reasons.attempt(f"storage.fs of {uri}", lambda: mount_under(place, roots))
    device = reasons.attempt(f"storage.device of {uri}", lambda: device_under(place, roots))
    for name in ("rotational", "read_ahead_kb", "virtual"):
        if device is not None and getattr(device, name) is None:
            reasons.add(f"storage.device.{name} of {uri}", f"the system does not tell it of {device.name}")
    fs = {"type": mount.fs, "source": mount.source, "options": _telling(mount.options)} if mount else None
    return {"uri": uri, "fs": fs, "device": device.as_json() if device else None}


def _telling(options: str) -> str:
    """Mount options that bear on speed, each once."""
    words = (word for word in options.split(",") if "=" not in word or word.partition("=")[0] in _TELLING_OPTIONS)
    return ",".join(dict.fromkeys(words))
