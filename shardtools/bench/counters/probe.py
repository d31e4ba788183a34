"""One look at everything that is counted: the names of the series, and where each comes from."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

from shardtools.bench.counters import cgroup, disk, host
from shardtools.bench.counters.device import BlockDevice, Roots, device_under
from shardtools.bench.counters.gpu import Gpu, Nvml
from shardtools.bench.counters.tree import ProcessTree
from shardtools.bench.not_measured import Reasons, Unknown, read_text

RESOURCES = ("cpu", "io", "memory")
"""Of pressure."""


class Probe:
    """Reads the counters of a process tree, the machine, and the device under ``path``; what it cannot read it gives a reason for."""

    def __init__(self, tree: ProcessTree, path: str | None, roots: Roots) -> None:
        self.reasons = Reasons()
        """By group of series: ``tree``, ``disk``, ``gpu`` and so on."""
        self._tree = tree
        self._roots = roots
        self.device = self.reasons.attempt("disk", lambda: _device(path, roots))
        self.group = self.reasons.attempt("cgroup", lambda: cgroup.group_of("cpu", roots))
        self.quota = cgroup.quota_of(self.group) if self.group else None
        self._nvml = self.reasons.attempt("gpu", Nvml)
        self.gpus: list[Gpu] = (self.reasons.attempt("gpu", self._nvml.gpus) or []) if self._nvml else []

    def read(self) -> dict[str, float]:
        """Cumulative counters and gauges now; a group that cannot be read is left out."""
        groups: dict[str, Callable[[], Mapping[str, float]]] = {
            "tree": self._usage,
            "cgroup": self._throttling,
            "host": self._host,
            "load": lambda: {"load1": host.parse_load(self._proc("loadavg"))},
            "memory": lambda: {"available_bytes": host.parse_meminfo(self._proc("meminfo"), "MemAvailable")},
            "network": self._network,
            "disk": self._disk,
            "gpu": self._gpu,
        }
        for resource in RESOURCES:
            groups[f"psi_{resource}"] = lambda name=resource: self._pressure(name)  # type: ignore[misc]
        found: dict[str, float] = {}
        for group, measure in groups.items():
            found |= self.reasons.attempt(group, measure) or {}
        return found

    def close(self) -> None:
        if self._nvml:
            self._nvml.close()

    def _proc(self, name: str) -> str:
        return read_text(f"{self._roots.proc}/{name}")

    def _usage(self) -> dict[str, float]:
        usage = self._tree.usage()
        found = {"cpu_s": usage.cpu_s, "rss_bytes": usage.rss_bytes, "num_processes": usage.num_processes}
        if usage.rchar is None or usage.read_bytes is None:
            self.reasons.add("io", usage.io_reason)
            return found
        return found | {"rchar": usage.rchar, "read_bytes": usage.read_bytes}

    def _throttling(self) -> dict[str, float]:
        if self.group is None:
            return {}
        counted = cgroup.throttling_of(self.quota)
        return {"periods": counted.num_periods, "throttled_periods": counted.num_throttled, "throttled_s": counted.throttled_s}

    def _host(self) -> dict[str, float]:
        cpu = host.parse_cpu(self._proc("stat"))
        return {"host_busy_s": cpu.busy_s, "host_steal_s": cpu.steal_s, "host_total_s": cpu.total_s}

    def _network(self) -> dict[str, float]:
        received, sent = host.parse_network(self._proc("net/dev"))
        return {"received_bytes": received, "sent_bytes": sent}

    def _pressure(self, resource: str) -> dict[str, float]:
        found = host.parse_pressure(self._proc(f"pressure/{resource}"))
        return {f"psi_{resource}_s": found.total_s, f"psi_{resource}_avg10": found.avg10}

    def _disk(self) -> dict[str, float]:
        if self.device is None:
            return {}
        counts = disk.parse_diskstats(self._proc("diskstats"), self.device.name)
        return {f"disk_{name}": value for name, value in asdict(counts).items()}

    def _gpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for gpu in self.gpus:
            reading = self._nvml.read(gpu.index) if self._nvml else None
            if reading and reading.util_pct is not None:
                found[f"gpu{gpu.index}_util_pct"] = reading.util_pct
            if reading and reading.memory_used_bytes is not None:
                found[f"gpu{gpu.index}_memory_bytes"] = reading.memory_used_bytes
        return found


def _device(path: str | None, roots: Roots) -> BlockDevice:
    if path is None:
        raise Unknown("the data is not on this machine")
    return device_under(path, roots)
