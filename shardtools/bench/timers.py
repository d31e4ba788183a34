"""Where time goes inside loader workers: one row of shared memory a worker, added to as samples pass, read when all is over.

Timers never travel in batches: each object of a batch costs about a millisecond on its way to the main process.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import get_worker_info

from shardtools.bench.spec import MAX_WORKERS

STAGES = ("storage", "parse", "decode", "transform", "collate")
"""In the order a sample passes them; tokenizing is ``decode``."""
MEASURES = ("wall_s", "cpu_s", "bytes", "count")
_NUM_LOOKS, _NUM_PROBES = 5, 400


class StageTimers:
    """float64 [1 + workers, stages, measures]; row 0 is the process that has no workers. Inherited by fork, pickled for spawn."""

    def __init__(self, num_workers: int) -> None:
        if not 0 <= num_workers <= MAX_WORKERS:
            raise ValueError(f"expected 0 to {MAX_WORKERS} workers, got {num_workers}")
        self._cells = torch.zeros(1 + num_workers, len(STAGES), len(MEASURES), dtype=torch.float64).share_memory_()  # type: ignore[no-untyped-call]

    @contextmanager
    def stage(self, name: str, num_bytes: int = 0) -> Iterator[None]:
        """Times what is inside: wall and thread CPU seconds. Stages do not nest."""
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - wall, time.thread_time() - cpu, num_bytes)

    def add(self, name: str, wall_s: float, cpu_s: float, num_bytes: int = 0) -> None:
        worker = get_worker_info()
        row = self._cells[0 if worker is None else 1 + worker.id, STAGES.index(name)].numpy()
        row += (wall_s, cpu_s, num_bytes, 1)

    def own_share(self, wall_s: float) -> float:
        """What the timers themselves took of the workers' time in a window of ``wall_s``: how often they were used since ``clear``,
        times what one use costs this process now, at its best of several looks: a busy host is not the timers' doing."""
        num_uses = float(self._cells[:, :, MEASURES.index("count")].sum())
        seconds_per_use = min(_seconds_of_probes() for _ in range(_NUM_LOOKS)) / _NUM_PROBES
        return num_uses * seconds_per_use / (max(1, len(self._cells) - 1) * wall_s)

    def clear(self) -> None:
        """At the start of the measured window: what was before does not count."""
        self._cells.zero_()

    def totals(self) -> dict[str, dict[str, Any]]:
        """By stage, over all workers: wall, CPU and blocked (wall less CPU) seconds, bytes, how often."""
        found = self._cells.sum(0).tolist()
        return {
            name: {"wall_s": wall, "cpu_s": cpu, "blocked_s": max(0.0, wall - cpu), "bytes": int(num_bytes), "count": int(count)}
            for name, (wall, cpu, num_bytes, count) in zip(STAGES, found, strict=True)
        }


def _seconds_of_probes() -> float:
    probe, began = StageTimers(0), time.perf_counter()
    for _ in range(_NUM_PROBES):
        with probe.stage(STAGES[0]):
            pass
    return time.perf_counter() - began
