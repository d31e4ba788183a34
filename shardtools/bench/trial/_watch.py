"""The counters of a trial, sampled from outside its process."""

import os
from typing import Any

from shardtools.bench.counters.sampler import Sampler
from shardtools.bench.processes.groups import group_members
from shardtools.bench.spec import TrialSpec


class Watch:
    """Of the trial whose group is ``pid``. Peaks are of the whole time, counters of the window it tells of."""

    def __init__(self, spec: TrialSpec, pid: int) -> None:
        self._pid = pid
        self._sampler: Sampler | None = Sampler(pid, spec.layout.uri)
        self._is_running = False
        self.found: dict[str, Any] = {}

    def start(self) -> None:
        assert self._sampler is not None
        self._sampler.start()
        self._is_running = True

    def finish(self, begin: float, end: float, gpu_uuid: str | None) -> None:
        """While the trial's processes are still there."""
        affinity = [len(os.sched_getaffinity(pid)) for pid in group_members(self._pid)] if hasattr(os, "sched_getaffinity") else []
        sampler = self._sampler
        self.stop()
        assert sampler is not None
        self.found = sampler.between(begin, end, gpu_uuid) | {"affinity_cpus": min(affinity, default=None)}
        if not affinity:
            self.found["not_measured"].append({"metric": "affinity_cpus", "reason": "this system does not tell"})

    def stop(self) -> None:
        """Also where the trial failed before it was finished."""
        if self._sampler is not None and self._is_running:
            self._is_running = False
            self._sampler.stop()
        self._sampler = None
