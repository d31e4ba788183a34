"""What a block device did between two looks at it.

Source: https://docs.kernel.org/admin-guide/iostats.html.
"""

from dataclasses import astuple, dataclass, fields

from shardtools.bench.not_measured import Unknown

SECTOR_BYTES = 512
"""Of the counters, whatever the device's own."""


@dataclass(frozen=True)
class DiskCounts:
    """Since boot, as ``/proc/diskstats`` counts."""

    reads: float
    read_sectors: float
    read_ms: float
    """Over all reads: each from when it was queued until it was done."""
    busy_ms: float
    """While at least one request was in flight."""
    queue_ms: float
    """Over all requests, weighted by the time each was in flight."""

    def less(self, earlier: "DiskCounts") -> "DiskCounts":
        return DiskCounts(*(now - then for now, then in zip(astuple(self), astuple(earlier), strict=True)))


NAMES = tuple(item.name for item in fields(DiskCounts))
_PLACES = (3, 5, 6, 12, 13)
"""Of these counts in a line, the device's numbers and name being the first three."""
_OTHER_PLACES = (4, 7, 8, 9, 10)


@dataclass(frozen=True)
class OtherCounts:
    """Since boot: what reading alone does not need, and ``iostat`` shows too."""

    read_merges: float
    writes: float
    write_merges: float
    write_sectors: float
    write_ms: float
    """Over all writes: each from when it was queued until it was done."""

    def less(self, earlier: "OtherCounts") -> "OtherCounts":
        return OtherCounts(*(now - then for now, then in zip(astuple(self), astuple(earlier), strict=True)))


def parse_diskstats(text: str, device: str) -> DiskCounts:
    """Raises Unknown where the device has no line."""
    return DiskCounts(*_counts(text, device, _PLACES))


def parse_others(text: str, device: str) -> OtherCounts:
    """Raises Unknown where the device has no line."""
    return OtherCounts(*_counts(text, device, _OTHER_PLACES))


def device_names(text: str) -> list[str]:
    """Every device ``/proc/diskstats`` has a line of, partitions among them."""
    return [words[2] for line in text.splitlines() if len(words := line.split()) > _PLACES[-1]]


def _counts(text: str, device: str, places: tuple[int, ...]) -> list[int]:
    for line in text.splitlines():
        words = line.split()
        if len(words) > _PLACES[-1] and words[2] == device:
            try:
                return [int(words[place]) for place in places]
            except ValueError:
                raise Unknown("/proc/diskstats is not as expected") from None
    raise Unknown(f"/proc/diskstats has no line of {device}")


@dataclass(frozen=True)
class DiskRates:
    """Of the reads in an interval. ``busy_pct`` of 100 is not saturation: a disk that serves many requests at once is busy with one."""

    read_bytes: int
    read_mbps: float
    """10^6 bytes a second."""
    iops: float
    await_ms: float | None
    """A read's mean time; None where there was no read."""
    aqu_sz: float
    """Mean number of requests in flight, writes among them."""
    busy_pct: float


def rates(delta: DiskCounts, wall_s: float) -> DiskRates:
    """Of the counts of ``wall_s`` seconds. Raises Unknown where a counter went backwards or no time passed."""
    if wall_s <= 0 or min(astuple(delta)) < 0:
        raise Unknown("the counters of the device went backwards")
    return DiskRates(
        int(delta.read_sectors * SECTOR_BYTES),
        delta.read_sectors * SECTOR_BYTES / 1e6 / wall_s,
        delta.reads / wall_s,
        delta.read_ms / delta.reads if delta.reads >= 1 else None,
        delta.queue_ms / 1e3 / wall_s,
        # Counted in whole milliseconds, it may end a little above.
        min(100.0, delta.busy_ms / 10 / wall_s),
    )
