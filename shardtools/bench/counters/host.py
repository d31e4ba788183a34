"""The whole machine: processors, pressure, load, memory, network, shared memory.

Source: proc_stat(5), proc_loadavg(5), proc_meminfo(5), https://docs.kernel.org/accounting/psi.html.
"""

import os
from dataclasses import dataclass

from shardtools.bench.not_measured import Unknown

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7


@dataclass(frozen=True)
class HostCpu:
    """Seconds since boot, over all processors."""

    busy_s: float
    """Neither idle, nor waiting for a disk, nor stolen."""
    steal_s: float
    """A hypervisor ran somebody else."""
    total_s: float


@dataclass(frozen=True)
class Pressure:
    """One line ``some`` of ``/proc/pressure``: at least one task waited."""

    avg10: float
    """Percent of the last ten seconds."""
    total_s: float
    """Since boot."""


@dataclass(frozen=True)
class SharedMemory:
    """``/dev/shm`` as a whole: torch unlinks what it puts there at once, so no listing shows it."""

    size_bytes: int
    free_bytes: int

    @property
    def used_bytes(self) -> int:
        return self.size_bytes - self.free_bytes

    @property
    def used_share(self) -> float:
        """0 to 1."""
        return self.used_bytes / max(1, self.size_bytes)


def parse_cpu(text: str) -> HostCpu:
    words = text.partition("\n")[0].split()
    # The last two of ten are guests' time, which is in user time already.
    if words[:1] != ["cpu"] or len(words) < 2 + _STEAL or not all(word.isdecimal() for word in words[1:]):
        raise Unknown("/proc/stat is not as expected")
    ticks = [int(word) for word in words[1:9]]
    total = sum(ticks)
    busy = total - ticks[_IDLE] - ticks[_IOWAIT] - ticks[_STEAL]
    return HostCpu(busy / _TICKS_PER_SECOND, ticks[_STEAL] / _TICKS_PER_SECOND, total / _TICKS_PER_SECOND)


def parse_pressure(text: str) -> Pressure:
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["some"]:
            try:
                values = dict(word.split("=", 1) for word in words[1:])
                return Pressure(float(values["avg10"]), int(values["total"]) / 1e6)
            except (KeyError, ValueError):
                break
    raise Unknown("the file in /proc/pressure is not as expected")


def parse_load(text: str) -> float:
    """Mean number of tasks that ran or waited for a disk, over the last minute."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        raise Unknown("/proc/loadavg is not as expected") from None


def parse_meminfo(text: str, name: str) -> int:
    """Bytes of one line, such as ``MemAvailable``."""
    for line in text.splitlines():
        found, _, rest = line.partition(":")
        words = rest.split()
        if found == name and words and words[0].isdecimal():
            return int(words[0]) * 1024
    raise Unknown(f"/proc/meminfo has no {name}")


def parse_network(text: str) -> tuple[int, int]:
    """Bytes received and sent since boot over all interfaces but the loopback.

    Interfaces that stand on another (bridges, VLANs, containers' pairs) count beside it: an upper bound where there are some.
    """
    received = sent = 0
    found = False
    for line in text.splitlines()[2:]:
        name, separator, rest = line.partition(":")
        words = rest.split()
        if not separator or len(words) < 9 or not (words[0].isdecimal() and words[8].isdecimal()):
            raise Unknown("/proc/net/dev is not as expected")
        found = True
        if name.strip() != "lo":
            received, sent = received + int(words[0]), sent + int(words[8])
    if not found:
        raise Unknown("/proc/net/dev has no interface")
    return received, sent


def shared_memory(path: str = "/dev/shm") -> SharedMemory:
    """Raises Unknown where there is none."""
    try:
        found = os.statvfs(path)
    except OSError:
        raise Unknown(f"{path} is not there") from None
    return SharedMemory(found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize)
