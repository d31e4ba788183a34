"""What this machine allows a process that loads data: read once, as plain values that findings are made of."""

import locale
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from shardtools.bench import environment
from shardtools.bench.counters import cgroup, cpu, host
from shardtools.bench.counters.affinity import num_allowed_cpus
from shardtools.bench.counters.device import NETWORK, Roots, is_memory, mount_under
from shardtools.bench.not_measured import Reasons, Unknown

_T = TypeVar("_T")

ULIMITS = {"-v": "RLIMIT_AS", "-u": "RLIMIT_NPROC", "-l": "RLIMIT_MEMLOCK", "-f": "RLIMIT_FSIZE", "-d": "RLIMIT_DATA"}
"""By the letter of ``ulimit``; ``-n`` is apart."""
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")


@dataclass(frozen=True)
class TempFolder:
    """Where workers' sockets and temporary files go."""

    path: str
    fs: str | None
    free_bytes: int | None
    is_memory: bool
    is_network: bool


@dataclass(frozen=True)
class Machine:
    """Every None has its reason in ``not_measured`` of the diagnosis. A limit that is not set is None, too."""

    shm: host.SharedMemory | None
    descriptors: tuple[int | None, int | None]
    """Soft and hard."""
    ulimits: dict[str, tuple[int | None, int | None]]
    num_cpus: int | None
    num_allowed_cpus: int
    cgroup_version: int | None
    quota_cpus: float | None
    throttled_share: float | None
    """Of the periods since the group was made, in which it was held back."""
    memory_limit: cgroup.MemoryLimit | None
    most_processes: int | None
    """The control group's; threads count."""
    governor: str | None
    start_method: str
    python: tuple[int, int]
    temp: TempFolder
    encoding: str
    """Of file names."""
    is_container: bool

    @property
    def cpus_effective(self) -> int:
        quota = None if self.quota_cpus is None else cgroup.Quota(self.quota_cpus, "")
        return cgroup.cpus_effective(self.num_allowed_cpus, quota)

    def as_json(self) -> dict[str, Any]:
        """What the ledger of the environment has not."""
        return {
            "shm_used_bytes": None if self.shm is None else self.shm.used_bytes,
            "ulimits": {letter: list(limits) for letter, limits in self.ulimits.items()},
            "throttled_share": self.throttled_share,
            "most_processes": self.most_processes,
            "temp": asdict(self.temp),
            "encoding": self.encoding,
            "is_container": self.is_container,
        }


def this_machine(roots: Roots, reasons: Reasons) -> Machine:
    """As it is now."""
    group = reasons.attempt("cgroup", lambda: cgroup.group_of("cpu", roots))
    quota = cgroup.quota_of(group) if group else None
    return Machine(
        reasons.attempt("shm", host.shared_memory),
        _limits("RLIMIT_NOFILE"),
        {letter: _limits(name) for letter, name in ULIMITS.items() if hasattr(resource, name)},
        os.cpu_count(),
        num_allowed_cpus(),
        group.version if group else None,
        quota.cpus if quota else None,
        reasons.attempt("throttled_share", lambda: _throttled_share(quota)),
        _or_none(lambda: cgroup.memory_limit_of(cgroup.group_of("memory", roots))),
        _or_none(lambda: cgroup.most_processes_of(cgroup.group_of("pids", roots))),
        reasons.attempt("governor", lambda: cpu.governor(roots)),
        environment.default_start_method(),
        (sys.version_info[0], sys.version_info[1]),
        _temp_folder(roots, reasons),
        sys.getfilesystemencoding() or locale.getpreferredencoding(False),
        _is_container(roots),
    )


def _limits(name: str) -> tuple[int | None, int | None]:
    soft, hard = resource.getrlimit(getattr(resource, name))
    return (None if soft == resource.RLIM_INFINITY else soft, None if hard == resource.RLIM_INFINITY else hard)


def _throttled_share(quota: cgroup.Quota | None) -> float:
    counted = cgroup.throttling_of(quota)
    return counted.num_throttled / counted.num_periods if counted.num_periods else 0.0


def _or_none(look: Callable[[], _T | None]) -> _T | None:
    """Of limits: where no group of the controller is mounted none is set by it."""
    try:
        return look()
    except Unknown:
        return None


def _temp_folder(roots: Roots, reasons: Reasons) -> TempFolder:
    path = tempfile.gettempdir()
    mount = reasons.attempt("temp.fs", lambda: mount_under(path, roots))
    try:
        free_bytes = shutil.disk_usage(path).free
    except OSError as error:
        reasons.add("temp.free_bytes", os.strerror(error.errno or 0))
        free_bytes = None
    return TempFolder(path, mount.fs if mount else None, free_bytes, bool(mount and is_memory(mount)), bool(mount and mount.fs in NETWORK))


def _is_container(roots: Roots) -> bool:
    """By what Docker, Podman and Kubernetes leave, or a root on an overlay."""
    if any(os.path.exists(mark) for mark in _CONTAINER_MARKS):
        return True
    try:
        return mount_under("/", roots).fs == "overlay"
    except Unknown:
        return False
