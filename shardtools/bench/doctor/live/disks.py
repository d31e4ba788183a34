"""Block devices between two looks, by the names and units of ``iostat -x``.

Source: iostat(1) of sysstat 12; https://docs.kernel.org/admin-guide/iostats.html.
"""

import os
from dataclasses import dataclass
from typing import Any

from shardtools.bench.counters.device import Roots
from shardtools.bench.counters.disk import SECTOR_BYTES, DiskCounts, OtherCounts, device_names, parse_diskstats, parse_others, rates

_KIB = 1024


@dataclass(frozen=True)
class DiskCounters:
    """Of one device since boot."""

    reading: DiskCounts
    others: OtherCounts


@dataclass(frozen=True)
class DiskUse:
    """Of one device in an interval."""

    device: str
    reads_per_s: float
    read_kib_per_s: float
    merged_reads_pct: float
    read_await_ms: float | None
    """Mean of a read; None where there was none. ``iostat`` writes 0 then."""
    read_kib: float | None
    """Mean size of a read."""
    writes_per_s: float
    written_kib_per_s: float
    write_await_ms: float | None
    aqu_sz: float
    """Mean number of requests in flight."""
    util_pct: float

    @property
    def is_idle(self) -> bool:
        return not (self.reads_per_s or self.writes_per_s or self.aqu_sz)

    def as_json(self) -> dict[str, Any]:
        """By the original's names."""
        return {
            "device": self.device,
            "r/s": self.reads_per_s,
            "rkB/s": self.read_kib_per_s,
            "%rrqm": self.merged_reads_pct,
            "r_await": self.read_await_ms,
            "rareq-sz": self.read_kib,
            "w/s": self.writes_per_s,
            "wkB/s": self.written_kib_per_s,
            "w_await": self.write_await_ms,
            "aqu-sz": self.aqu_sz,
            "%util": self.util_pct,
        }


def read_disks(text: str, names: tuple[str, ...] | None, roots: Roots) -> dict[str, DiskCounters]:
    """Those of ``names`` that ``/proc/diskstats`` has, or all whole devices. Raises Unknown where a line is not as expected."""
    known = device_names(text)
    wanted = [name for name in known if name in names] if names is not None else [name for name in known if not _is_partition(name, roots)]
    return {name: DiskCounters(parse_diskstats(text, name), parse_others(text, name)) for name in wanted}


def _is_partition(name: str, roots: Roots) -> bool:
    return os.path.exists(f"{roots.sys}/class/block/{name}/partition")


def disk_use(device: str, earlier: DiskCounters, now: DiskCounters, wall_s: float) -> DiskUse:
    """Raises Unknown where a counter went backwards."""
    reading, others = now.reading.less(earlier.reading), now.others.less(earlier.others)
    found = rates(reading, wall_s)
    asked = reading.reads + others.read_merges
    return DiskUse(
        device,
        found.iops,
        found.read_bytes / _KIB / wall_s,
        100 * others.read_merges / asked if asked else 0.0,
        found.await_ms,
        found.read_bytes / _KIB / reading.reads if reading.reads else None,
        others.writes / wall_s,
        others.write_sectors * SECTOR_BYTES / _KIB / wall_s,
        others.write_ms / others.writes if others.writes else None,
        found.aqu_sz,
        found.busy_pct,
    )
