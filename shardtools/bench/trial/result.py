"""What came of a trial."""

from dataclasses import dataclass, field
from typing import Any

from shardtools.bench.spec import TrialSpec
from shardtools.bench.trial._words import Status


@dataclass(frozen=True)
class TrialResult:
    """``found`` is what the trial's process measured, ``watched`` what was counted from outside; both plain data, empty if it failed.

    ``found``: ``startup`` {iter_s, first_batch_s, epoch2_s, teardown_s}; ``window`` (as ``WindowFacts.as_json``); ``throughput`` in
    samples a second; ``step_ms``; ``steps`` {data_wait_ms, h2d_copy_ms, compute_ms, launch_ms, gpu_starved_ms}, each None or {mean, p50,
    p95, p99, first}; ``h2d_exposed_ms``; ``rates`` {F, G, H, L} in samples a second; ``au``; ``shares`` {wait, compute, starved, h2d};
    ``ipc_floor_ms``; ``pin_ms``; ``h2d_ceilings`` {pinned_GBps, pageable_GBps}; ``stages`` and ``timers_share`` (as ``StageTimers`` has
    them); ``batch`` {bytes, tensors, shm_bytes, pinned_bytes, samples}; ``probe`` and ``predicted`` (as ``Probe`` and ``Prediction``
    have them); ``pinning``; ``device_peaks``; ``start_method``; ``order``; ``limits``; ``warnings``; ``fetched`` {bytes, MBps,
    requests, latency_ms, samples, wall_s} of data in a bucket. Of a trial that was refused for what it would take, ``batch``, ``probe``
    and ``predicted`` are there, and ``exceeds``: ``shm``, ``fds`` or ``RAM``.

    ``watched``: ``wall_s``, ``counters`` and ``gpus`` of the window; ``peaks`` {shm, fd, rss, pss, pinned, gpu_memory} of the whole
    trial; ``overhead`` of the watching; ``affinity_cpus``, the fewest processors any process of the trial may use.
    """

    spec: TrialSpec
    status: Status
    message: str
    """One sentence; empty if all is well."""
    found: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)
    not_measured: list[dict[str, str]] = field(default_factory=list)
    """``{metric, reason}`` of everything that is None."""
    leftovers: list[str] = field(default_factory=list)
    """Processes and shared memory the trial left behind; they were removed. Its temporary files lie in a folder that goes with it."""
    said: str = ""
    """The end of what its processes printed."""

    @property
    def throughput(self) -> float | None:
        """Samples a second in the window; None where the trial failed."""
        value: float | None = self.found.get("throughput")
        return value

    def as_json(self) -> dict[str, Any]:
        """All but the words it printed."""
        names = ("status", "message", "found", "watched", "not_measured", "leftovers")
        return {"spec": self.spec.as_json(), **{name: getattr(self, name) for name in names}}
