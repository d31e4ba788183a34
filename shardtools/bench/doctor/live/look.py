"""Two looks at the machine, and what lies between them."""

import time
from dataclasses import asdict, dataclass
from typing import Any

from shardtools.bench.counters import host
from shardtools.bench.counters.device import Roots, mount_under
from shardtools.bench.counters.gpu import GpuUse, Nvml
from shardtools.bench.counters.segments import Segment, parse_segments
from shardtools.bench.doctor.live.at_hand import AtHand
from shardtools.bench.doctor.live.disks import DiskCounters, DiskUse, disk_use, read_disks
from shardtools.bench.doctor.live.tasks import TaskCounters, TaskUse, read_tasks, task_use
from shardtools.bench.not_measured import Reasons, Unknown, read_text


@dataclass(frozen=True)
class Scope:
    """What is looked at."""

    devices: tuple[str, ...] | None
    """None: every device that did something."""
    no_device_reason: str
    """Why there is none under the data, if so."""
    pid: int | None
    """It and all it starts; None: this user's processes that have torch loaded."""


@dataclass(frozen=True)
class Now:
    """What happened between two looks, and what is there at the later."""

    interval_s: float
    disks: list[DiskUse]
    tasks: list[TaskUse]
    segments: list[Segment] | None
    shm: host.SharedMemory | None
    shm_source: str | None
    """As it was mounted: ``tmpfs``, ``shm``."""
    gpus: list[GpuUse] | None
    reasons: Reasons
    """Why a part is not there: ``iostat``, ``pidstat``, ``ipcs``, ``df``, ``dmon``."""

    def as_json(self) -> dict[str, Any]:
        return {
            "interval_s": self.interval_s,
            "iostat": [disk.as_json() for disk in self.disks],
            "pidstat": [task.as_json() for task in self.tasks],
            "ipcs": None if self.segments is None else [segment.as_json() for segment in self.segments],
            "df": None if self.shm is None else {"filesystem": self.shm_source, **asdict(self.shm)},
            "dmon": None if self.gpus is None else [gpu.as_json() for gpu in self.gpus],
            "not_measured": [missing.as_json() for missing in self.reasons.listed()],
        }


class Watch:
    """Looks at the machine when it is made, and at each call of ``now``. Give NVML back by ``close``."""

    def __init__(self, scope: Scope, roots: Roots | None = None) -> None:
        self._scope = scope
        self._roots = roots or Roots()
        self._at_hand = AtHand(scope.pid, self._roots.proc)
        self._opening = Reasons()
        self._nvml = self._opening.attempt("dmon", Nvml)
        self._gpus = (self._opening.attempt("dmon", self._nvml.gpus) or []) if self._nvml else []
        self._look = self._take(Reasons())

    @property
    def has_ended(self) -> bool:
        """Whether the process that was named is gone, with all it started."""
        return self._scope.pid is not None and not self._look.tasks

    def now(self) -> Now:
        """Since the last call, or since this was made."""
        reasons, before = Reasons(), self._look
        self._look = now = self._take(reasons)
        wall_s = max(now.moment - before.moment, 1e-6)
        memory_bytes = self._attempt_memory()
        disks = reasons.attempt("iostat", lambda: self._disks(before.disks, now.disks, wall_s)) or []
        tasks = [
            task_use(pid, before.tasks[pid], counters, wall_s, memory_bytes)
            for pid, counters in now.tasks.items()
            if pid in before.tasks and before.tasks[pid].use.start_ticks == counters.use.start_ticks
        ]
        if not tasks:
            reasons.add("pidstat", _no_tasks(self._scope.pid))
        gpus = reasons.attempt("dmon", self._accelerators)
        _explain(reasons, [disk.as_json() for disk in disks], "device", "nothing of that kind was asked of the device")
        _explain(reasons, [task.as_json() for task in tasks], "PID", "the kernel does not tell")
        _explain(reasons, [gpu.as_json() for gpu in gpus or []], "index", "NVML does not tell")
        return Now(
            wall_s,
            disks,
            tasks,
            reasons.attempt("ipcs", lambda: parse_segments(read_text(f"{self._roots.proc}/sysvipc/shm"))),
            reasons.attempt("df", host.shared_memory),
            reasons.attempt("df source", lambda: mount_under("/dev/shm", self._roots).source),
            gpus,
            reasons,
        )

    def close(self) -> None:
        if self._nvml:
            self._nvml.close()

    def _take(self, reasons: Reasons) -> "_Look":
        pids = self._at_hand.pids()
        moment = time.monotonic()
        disks = reasons.attempt("iostat", self._read_disks) or {}
        return _Look(moment, disks, read_tasks(pids, self._roots.proc))

    def _read_disks(self) -> dict[str, DiskCounters]:
        if self._scope.devices == ():
            raise Unknown(self._scope.no_device_reason)
        return read_disks(read_text(f"{self._roots.proc}/diskstats"), self._scope.devices, self._roots)

    def _disks(self, before: dict[str, DiskCounters], now: dict[str, DiskCounters], wall_s: float) -> list[DiskUse]:
        found = [disk_use(name, before[name], counters, wall_s) for name, counters in now.items() if name in before]
        return [disk for disk in found if self._scope.devices is not None or not disk.is_idle]

    def _accelerators(self) -> list[GpuUse]:
        if self._nvml is None or not self._gpus:
            raise Unknown(self._opening.of("dmon") or "NVML finds no accelerator")
        return [self._nvml.use(gpu.index) for gpu in self._gpus]

    def _attempt_memory(self) -> int | None:
        try:
            return host.parse_meminfo(read_text(f"{self._roots.proc}/meminfo"), "MemTotal")
        except Unknown:
            return None


@dataclass(frozen=True)
class _Look:
    moment: float
    disks: dict[str, DiskCounters]
    tasks: dict[int, TaskCounters]


def _no_tasks(pid: int | None) -> str:
    if pid is not None:
        return f"process {pid} has ended, or has just begun"
    return "no process of this user has torch loaded; name one with --pid"


def _explain(reasons: Reasons, rows: list[dict[str, Any]], name: str, reason: str) -> None:
    """Every None in a table, by the row's name and the column's."""
    for row in rows:
        for column, value in row.items():
            if value is None:
                reasons.add(f"{row[name]} {column}", reason)
