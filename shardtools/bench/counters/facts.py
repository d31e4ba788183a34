"""From series of readings to the numbers of a report."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from shardtools.bench.counters import disk
from shardtools.bench.counters.gpu import Gpu
from shardtools.bench.counters.probe import RESOURCES
from shardtools.bench.counters.series import Series
from shardtools.bench.not_measured import Reasons, Unknown

_T = TypeVar("_T")

MIN_GPU_SECONDS = 3.0
"""NVML's periods last up to a second: below a few of them their mean says nothing."""


@dataclass(frozen=True)
class Interval:
    """What happened from ``begin`` to ``end``, moments of the series' clock."""

    series: Series
    begin: float
    end: float
    reasons: Reasons
    """Of groups of series, as the probe found them."""

    @property
    def wall_s(self) -> float:
        return self.end - self.begin

    def delta(self, name: str, group: str) -> float:
        """Raises Unknown, with the probe's reason where it had one."""
        return self._explained(lambda: self.series.delta(name, self.begin, self.end), group)

    def rate(self, name: str, group: str) -> float:
        return self.delta(name, group) / self.wall_s

    def values(self, name: str, group: str) -> list[float]:
        return self._explained(lambda: self.series.within(name, self.begin, self.end), group)

    def _explained(self, look: Callable[[], _T], group: str) -> _T:
        try:
            return look()
        except Unknown:
            if reason := self.reasons.of(group):
                raise Unknown(reason) from None
            raise


def counters(interval: Interval, num_cpus: int, reasons: Reasons) -> dict[str, float | None]:
    """By the names of the definitions; None where unknown, the reason then in ``reasons``."""
    measures: dict[str, Any] = {
        "cpu_util": lambda: interval.rate("cpu_s", "tree"),
        "cpu_util_share": lambda: interval.rate("cpu_s", "tree") / num_cpus,
        "cpu_throttled_share": lambda: _throttled_share(interval),
        "cpu_throttled_s": lambda: interval.delta("throttled_s", "cgroup"),
        "host_cpu_util": lambda: interval.rate("host_busy_s", "host"),
        "steal_share": lambda: _share(interval.delta("host_steal_s", "host"), interval.delta("host_total_s", "host")),
        "load1": lambda: max(interval.values("load1", "load")),
        "rchar": lambda: round(interval.delta("rchar", "io")),
        "read_bytes": lambda: round(interval.delta("read_bytes", "io")),
        "cache_hit": lambda: _cache_hit(interval),
        "net_received_MBps": lambda: interval.rate("received_bytes", "network") / 1e6,
        "net_sent_MBps": lambda: interval.rate("sent_bytes", "network") / 1e6,
    }
    for resource in RESOURCES:
        measures[f"psi_{resource}_share"] = lambda name=resource: min(1.0, interval.rate(f"psi_{name}_s", f"psi_{name}"))
        measures[f"psi_{resource}_avg10"] = lambda name=resource: max(interval.values(f"psi_{name}_avg10", f"psi_{name}"))
    found = {name: reasons.attempt(name, measure) for name, measure in measures.items()}
    return found | _of_disk(interval, reasons)


def _throttled_share(interval: Interval) -> float:
    periods = interval.delta("periods", "cgroup")
    # No period passed: no quota, or nobody ran.
    return interval.delta("throttled_periods", "cgroup") / periods if periods else 0.0


def _share(part: float, whole: float) -> float:
    if whole <= 0:
        raise Unknown("the machine counted no time")
    return part / whole


def _cache_hit(interval: Interval) -> float:
    rchar, read_bytes = interval.delta("rchar", "io"), interval.delta("read_bytes", "io")
    if rchar < 1:
        raise Unknown("no call of read was made; files that are mapped are not counted")
    if read_bytes > rchar:
        raise Unknown("more was fetched than read: by read-ahead, or through mapped files, which no counter has")
    return 1 - read_bytes / rchar


def _of_disk(interval: Interval, reasons: Reasons) -> dict[str, float | None]:
    names = ("disk_read_bytes", "disk_read_MBps", "disk_iops", "await_ms", "aqu_sz", "disk_busy_pct", "others_read_bytes")

    def measure() -> disk.DiskRates:
        counted = disk.DiskCounts(*(interval.delta(f"disk_{name}", "disk") for name in disk.NAMES))
        return disk.rates(counted, interval.wall_s)

    rates = reasons.attempt("disk", measure)
    if rates is None:
        reason = reasons.of("disk") or ""
        for name in names:
            reasons.add(name, reason)
        return dict.fromkeys(names)
    if rates.await_ms is None:
        reasons.add("await_ms", "the device served no read in the interval")
    ours = reasons.attempt("others_read_bytes", lambda: interval.delta("read_bytes", "io"))
    others = None if ours is None else max(0, round(rates.read_bytes - ours))
    found = (rates.read_bytes, rates.read_mbps, rates.iops, rates.await_ms, rates.aqu_sz, rates.busy_pct, others)
    return dict(zip(names, found, strict=True))


def gpu_facts(interval: Interval, gpus: list[Gpu], reasons: Reasons) -> list[dict[str, Any]]:
    """For each accelerator: mean utilisation and the most memory in use by anybody."""
    found = []
    for gpu in gpus:
        names = f"gpu{gpu.index}_util_pct", f"gpu{gpu.index}_memory_bytes"
        util = reasons.attempt(names[0], lambda name=names[0]: _mean_util(interval, name))  # type: ignore[misc]
        memory = reasons.attempt(names[1], lambda name=names[1]: max(interval.values(name, "gpu")))  # type: ignore[misc]
        found.append({"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "util_pct": util, "memory_peak_bytes": memory})
    return found


def _mean_util(interval: Interval, name: str) -> float:
    if interval.wall_s < MIN_GPU_SECONDS:
        raise Unknown(f"the interval is shorter than {MIN_GPU_SECONDS:.0f} s, and NVML looks about once a second")
    values = interval.values(name, "gpu")
    return sum(values) / len(values)
