"""A thread that watches a process tree and its machine, and says what watching cost."""

import threading
import time
from dataclasses import dataclass
from typing import Any

from shardtools.bench.counters import cgroup, cpu, host
from shardtools.bench.counters.affinity import num_allowed_cpus
from shardtools.bench.counters.device import Roots
from shardtools.bench.counters.facts import Interval, counters, gpu_facts
from shardtools.bench.counters.probe import Probe
from shardtools.bench.counters.series import Series
from shardtools.bench.counters.tree import ProcessTree
from shardtools.bench.not_measured import Reasons
from shardtools.bench.places import place_of

_PSS_SHARE = 0.01
_GPU_UTIL, _PEAKS = "gpu_util_nvml", ("shm", "fd", "rss", "pss")


@dataclass(frozen=True)
class Pace:
    """Seconds between looks."""

    fast_s: float = 0.01
    """At shared memory and descriptors, whose peaks are short."""
    slow_s: float = 0.2
    """At counters."""
    pss_s: float = 1.0
    """At proportional memory, at least: the kernel walks every page table of a process for it. Where that takes long it is looked at
    less often, so that it never takes more than a hundredth of a processor."""


class Sampler:
    """Watches ``pid`` and all it starts, and the device under ``uri``, from ``start`` to ``stop``.

    Moments are those of ``time.perf_counter``, the same in every process of a Linux machine. Best run outside the watched
    process, whose interpreter it would hold up. ``/dev/shm``, the device and the network are everybody's.
    """

    def __init__(self, pid: int, uri: str, pace: Pace | None = None, roots: Roots | None = None) -> None:
        self._pace = pace or Pace()
        self._roots = roots or Roots()
        self._tree = ProcessTree(pid, self._roots.proc)
        self._probe = Probe(self._tree, place_of(uri), self._roots)
        self._series = Series()
        self._peaks: dict[str, float] = {}
        self._shm = self._probe.reasons.attempt("shm", host.shared_memory)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shardtools-sampler", daemon=True)
        self._error: Exception | None = None
        self._cpu_s = 0.0
        self._num_looks = 0
        self._longest_gap_s = 0.0
        self._span = (0.0, 0.0)
        self._heat: list[int | None] = []
        """Slow-downs because of heat so far, at the start and at the end."""

    def start(self) -> None:
        """The first look is made before this returns."""
        self._span = (time.perf_counter(), 0.0)
        self._feel_heat()
        self._look_slowly()
        self._look_fast()
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """The last look, then everything from the first to the last. Raises what went wrong while watching."""
        self._stopping.set()
        self._thread.join()
        if self._error:
            raise self._error
        self._look_slowly()
        self._look_fast()
        self._span = (self._span[0], time.perf_counter())
        # Whatever the pace, once: the processes are as large as they get.
        self._look_at_pss()
        self._feel_heat()
        self._probe.close()
        return self.between()

    def between(self, begin: float | None = None, end: float | None = None, gpu_uuid: str | None = None) -> dict[str, Any]:
        """After ``stop``: ``wall_s``, ``counters`` and ``gpus`` from ``begin`` to ``end``; ``peaks``, ``overhead`` and ``thermal_events``
        of the whole watch.

        ``not_measured`` has the reason for every None. ``gpu_uuid`` names the accelerator ``gpu_util_nvml`` is of; it need not where
        there is but one.
        """
        first, last = self._span
        begin, end = max(first, first if begin is None else begin), min(last, last if end is None else end)
        reasons = Reasons()
        interval = Interval(self._series, begin, end, self._probe.reasons)
        found = counters(interval, cgroup.cpus_effective(num_allowed_cpus(), self._probe.quota), reasons)
        gpus = gpu_facts(interval, self._probe.gpus, reasons)
        return {
            "wall_s": max(0.0, end - begin),
            "counters": found | {_GPU_UTIL: self._util(gpus, gpu_uuid, reasons), "thermal_events": self._num_thermal_events(reasons)},
            "gpus": gpus,
            "peaks": {name: self._peak(name, reasons) for name in _PEAKS},
            "overhead": self._overhead(last - first),
            "not_measured": [missing.as_json() for missing in reasons.listed() if missing.metric != "disk"],
        }

    def _watch(self) -> None:
        next_slow = last = time.perf_counter()
        next_pss = last + self._pace.pss_s
        try:
            while not self._stopping.wait(self._pace.fast_s):
                now = time.perf_counter()
                self._longest_gap_s, last = max(self._longest_gap_s, now - last), now
                self._look_fast()
                if now >= next_slow:
                    next_slow = now + self._pace.slow_s
                    self._look_slowly()
                if now >= next_pss:
                    next_pss = now + max(self._pace.pss_s, self._look_at_pss() / _PSS_SHARE)
        except Exception as error:
            self._error = error
        finally:
            self._cpu_s = time.thread_time()

    def _look_slowly(self) -> None:
        values = self._probe.read()
        self._series.append(time.perf_counter(), values)
        self._keep_peak("rss", values.get("rss_bytes"))

    def _look_at_pss(self) -> float:
        """Seconds it took."""
        began = time.thread_time()
        self._keep_peak("pss", self._probe.reasons.attempt("pss", lambda: self._tree.pss_bytes(self._look_fast)))
        return time.thread_time() - began

    def _look_fast(self) -> None:
        self._num_looks += 1
        self._keep_peak("fd", self._probe.reasons.attempt("fd", self._tree.most_open_files))
        if self._shm:
            now = self._probe.reasons.attempt("shm", host.shared_memory)
            self._keep_peak("shm", max(0, now.used_bytes - self._shm.used_bytes) if now else None)

    def _feel_heat(self) -> None:
        self._heat.append(self._probe.reasons.attempt("thermal_events", lambda: cpu.num_thermal_events(self._roots)))

    def _num_thermal_events(self, reasons: Reasons) -> int | None:
        first, last = self._heat
        if first is None or last is None:
            reasons.add("thermal_events", self._probe.reasons.of("thermal_events") or "")
            return None
        return last - first

    def _keep_peak(self, name: str, value: float | None) -> None:
        if value is not None:
            self._peaks[name] = max(self._peaks.get(name, 0), value)

    def _peak(self, name: str, reasons: Reasons) -> float | None:
        if name not in self._peaks:
            group = "tree" if name == "rss" else name
            reasons.add(name, self._probe.reasons.of(group) or "nothing was there to be looked at")
        return self._peaks.get(name)

    def _util(self, gpus: list[dict[str, Any]], uuid: str | None, reasons: Reasons) -> float | None:
        meant = [gpu for gpu in gpus if uuid is None or uuid.removeprefix("GPU-") == gpu["uuid"].removeprefix("GPU-")]
        if len(meant) != 1:
            reason = self._probe.reasons.of("gpu") or f"{len(gpus)} accelerators are here, and which was used is not known"
            reasons.add(_GPU_UTIL, reason)
            return None
        value: float | None = meant[0]["util_pct"]
        if value is None:
            reasons.add(_GPU_UTIL, reasons.of(f"gpu{meant[0]['index']}_util_pct") or "NVML did not tell")
        return value

    def _overhead(self, wall_s: float) -> dict[str, float]:
        """Of the thread: CPU seconds, processors, looks a second, and the longest time between two looks."""
        wall_s = max(wall_s, 1e-9)
        return {
            "cpu_s": self._cpu_s,
            "cpu_util": self._cpu_s / wall_s,
            "looks_per_s": self._num_looks / wall_s,
            "longest_gap_ms": self._longest_gap_s * 1e3,
        }
