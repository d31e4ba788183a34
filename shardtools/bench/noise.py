"""Whether the machine was quiet enough for the numbers to be believed.

What the trial itself does is no noise: its own workers make load, pressure and reads. So before the first trial all activity counts,
and during trials only what can be told apart from ours, or what others alone cause, such as stolen time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from shardtools.bench.not_measured import NotMeasured


@dataclass(frozen=True)
class HostReading:
    """What was seen in an interval; None: not measured. Shares are 0 to 1, ``cpus`` are processors' worth of time."""

    psi_cpu_avg10: float | None = None
    """Percent of the last ten seconds in which some task waited for a processor: the most seen."""
    psi_io_avg10: float | None = None
    steal_share: float | None = None
    """A hypervisor ran somebody else."""
    load1: float | None = None
    num_cpus: int | None = None
    """Of the whole machine."""
    others_cpus: float | None = None
    """Used by other processes than ours."""
    others_read_mbps: float | None = None
    """Read from our device by others, 10^6 bytes a second."""
    others_read_share: float | None = None
    """Of all that was read from it."""
    governor: str | None = None
    """Of the processors' frequency."""
    thermal_events: int | None = None
    """How often a processor was slowed because of heat."""


@dataclass(frozen=True)
class Limits:
    """Above these a host is noisy."""

    psi_cpu_avg10: float = 5.0
    psi_io_avg10: float = 5.0
    steal_share: float = 0.01
    load_per_cpu: float = 0.5
    others_cpus_share: float = 0.1
    """Of the machine's processors."""
    others_read_mbps: float = 5.0
    others_read_share: float = 0.1


@dataclass(frozen=True)
class Noise:
    """The verdict of the gate."""

    sentences: tuple[str, ...]
    """Each says when, what, how much, and the limit; empty on a quiet host."""
    not_measured: tuple[NotMeasured, ...]
    """What could not be looked at."""
    is_known: bool
    """Something could be looked at."""

    @property
    def line(self) -> str:
        """``quiet``, ``noisy host: ...`` or ``not known``: what the verdict ends with."""
        if self.sentences:
            return "noisy host: " + "; ".join(self.sentences)
        return "quiet" if self.is_known else "not known"

    def as_json(self) -> dict[str, Any]:
        return {"line": self.line, "sentences": list(self.sentences)}


def reading_of(sample: Mapping[str, Any], num_cpus: int | None = None, governor: str | None = None) -> HostReading:
    """From what a ``Sampler`` of the counters returned; what it lacks is None."""
    found: Mapping[str, Any] = sample.get("counters", {})
    wall_s = sample.get("wall_s")
    host, own = found.get("host_cpu_util"), found.get("cpu_util")
    others, disk = found.get("others_read_bytes"), found.get("disk_read_bytes")
    return HostReading(
        psi_cpu_avg10=found.get("psi_cpu_avg10"),
        psi_io_avg10=found.get("psi_io_avg10"),
        steal_share=found.get("steal_share"),
        load1=found.get("load1"),
        num_cpus=num_cpus,
        others_cpus=None if host is None or own is None else max(0.0, host - own),
        others_read_mbps=None if others is None or not wall_s else others / 1e6 / wall_s,
        others_read_share=None if others is None or disk is None else others / disk if disk else 0.0,
        governor=governor,
        thermal_events=found.get("thermal_events"),
    )


def judge(before: HostReading | None, during: Sequence[HostReading], limits: Limits | None = None) -> Noise:
    """The gate over a reading before the first trial and one of each trial.

    A burst in one trial of many is the median's business; what was above its limit in more than a quarter of the trials is told, with
    the median of those. Heat is told always: it lasts.
    """
    limits = limits or Limits()
    readings = ([before] if before else []) + list(during)
    seen = {name for reading in readings for name in _names() if getattr(reading, name) is not None}
    sentences = [*(_before(before, limits) if before else ()), *_during(during, limits)]
    missing = [NotMeasured(f"noise.{name}", "the host does not tell, or nobody looked") for name in _names() if name not in seen]
    return Noise(tuple(sentences), tuple(missing), bool(seen - {"num_cpus", "governor"}))


def _names() -> list[str]:
    return [field.name for field in fields(HostReading)]


def _before(reading: HostReading, limits: Limits) -> Iterator[str]:
    if _above(reading.psi_cpu_avg10, limits.psi_cpu_avg10):
        yield f"before: tasks waited for a CPU {reading.psi_cpu_avg10:.0f} % of the time (limit {limits.psi_cpu_avg10:.0f} %)"
    if _above(reading.psi_io_avg10, limits.psi_io_avg10):
        yield f"before: tasks waited for a disk {reading.psi_io_avg10:.0f} % of the time (limit {limits.psi_io_avg10:.0f} %)"
    # The load of the last minute is also that of a bench which ended before this one: it counts where nothing better is known.
    if reading.num_cpus and reading.others_cpus is None and _above(reading.load1, limits.load_per_cpu * reading.num_cpus):
        yield f"before: load {reading.load1:.1f} on {reading.num_cpus} CPUs (limit {limits.load_per_cpu * reading.num_cpus:.1f})"
    if reading.governor == "powersave":
        yield "the CPU governor is powersave, so the clock may change while it is measured"
    yield from (f"before: {what}" for what in _foreign(reading, limits))


def _during(readings: Sequence[HostReading], limits: Limits) -> Iterator[str]:
    tells = {"steal_share": _steal, "others_cpus": _others_cpus, "others_read_mbps": _others_reads}
    for name, tell in tells.items():
        loud = sorted((reading for reading in readings if tell(reading, limits)), key=attrgetter(name))
        if len(loud) > len(readings) / 4:
            yield f"in {len(loud)} of {len(readings)} trials {tell(loud[len(loud) // 2], limits)}"
    hot = sum(bool(reading.thermal_events) for reading in readings)
    if hot:
        yield f"in {hot} of {len(readings)} trials a CPU was slowed because of heat"


def _foreign(reading: HostReading, limits: Limits) -> list[str]:
    return [said for tell in (_steal, _others_cpus, _others_reads) if (said := tell(reading, limits))]


def _steal(reading: HostReading, limits: Limits) -> str | None:
    if not _above(reading.steal_share, limits.steal_share):
        return None
    return f"{100 * (reading.steal_share or 0):.0f} % of CPU time was stolen by the hypervisor (limit {100 * limits.steal_share:.0f} %)"


def _others_cpus(reading: HostReading, limits: Limits) -> str | None:
    if not reading.num_cpus or not _above(reading.others_cpus, limits.others_cpus_share * reading.num_cpus):
        return None
    limit = limits.others_cpus_share * reading.num_cpus
    return f"other programs used {reading.others_cpus:.1f} of {reading.num_cpus} CPUs (limit {limit:.1f})"


def _others_reads(reading: HostReading, limits: Limits) -> str | None:
    is_much = _above(reading.others_read_mbps, limits.others_read_mbps)
    if not is_much or not _above(reading.others_read_share, limits.others_read_share):
        return None
    return f"other programs read {reading.others_read_mbps:.0f} MB/s from the same disk (limit {limits.others_read_mbps:.0f} MB/s)"


def _above(value: float | None, limit: float) -> bool:
    return value is not None and value > limit
