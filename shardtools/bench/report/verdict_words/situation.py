"""What is at hand beside the facts of a verdict: the data, who reads it, how, and the machine. Advice that does not fit it is not given."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardtools.bench.spec import MIN_SECONDS, Consumer, Layout, Settings, Workload
from shardtools.bench.statistics import LITTLE_GAIN

_SMALL_KINDS = ("files", "jsonl")


@dataclass(frozen=True)
class Situation:
    """Of one side."""

    name: str
    """As the report calls the side."""
    layout: Layout
    workload: Workload
    """Settled."""
    settings: Settings
    consumer: Consumer
    machine: Mapping[str, Any]
    """``environment`` of the report."""
    batch: Mapping[str, Any] = field(default_factory=dict)
    """``bytes``, ``tensors``, ``shm_bytes``, ``samples`` of a collated batch, as a trial found it; empty: not known."""
    num_shards: int | None = None
    """None: of files and lines, or not known."""
    data_bytes: int | None = None
    """Of the files of the side."""
    shards_over_this: tuple[float, float] | None = None
    """Interval of how many times as fast shards of the same samples were; None: not compared, or no interval."""
    shards_uri: str | None = None
    """Where those lie."""
    knee_workers: int | None = None
    """Of the search; None: not searched."""
    knee_rates: tuple[float, float] | None = None
    """Samples a second that the search found for the settings as they are, and for those with ``knee_workers``."""
    min_seconds: float = MIN_SECONDS
    """Of a measured window, as it was asked for."""
    is_noisy: bool = False
    ended_steps: tuple[int, int] | None = None
    """Of most windows, the data ended after so many steps, and so many were wanted; None: they were long enough."""

    @property
    def is_small(self) -> bool:
        """Small files or lines, which shards would replace."""
        return self.layout.kind in _SMALL_KINDS

    @property
    def is_remote(self) -> bool:
        return "://" in self.layout.uri and not self.layout.uri.startswith("file://")

    @property
    def tokenizes(self) -> bool:
        """Text is tokenized as it is read."""
        return self.workload.decode == "tokens" and self.layout.kind == "jsonl"

    @property
    def has_own_values(self) -> bool:
        """What a batch holds is made by a function of the user's, and may be larger than it need be."""
        workload = self.workload
        return ":" in workload.decode or workload.transform is not None or workload.collate is not None

    @property
    def has_gpu(self) -> bool:
        return bool(self.machine.get("gpu")) or self.consumer.device == "cuda"

    @property
    def num_cpus(self) -> int | None:
        count = self.machine.get("cpus_effective")
        return None if count is None else max(1, math.ceil(count))

    @property
    def usable_memory_bytes(self) -> int | None:
        found = (self.machine.get("mem") or {}).get("usable_bytes")
        return None if found is None else int(found)

    @property
    def knee_gain(self) -> float | None:
        """Of the workers of the knee, as the search measured it; None where that is nothing to speak of."""
        gain = None if self.knee_rates is None else self.knee_rates[1] / self.knee_rates[0]
        return gain if gain is not None and gain >= LITTLE_GAIN else None

    def more_workers(self, is_waiting: bool = False) -> int | None:
        """So many workers are worth trying: up to the knee where it is known, else twice as many, never more than shards, nor than
        processors unless workers wait most of the time. None where there are enough."""
        now = self.settings.num_workers
        if self.knee_workers is not None:
            return self.knee_workers if self.knee_workers > now else None
        caps = [cap for cap in (None if is_waiting else self.num_cpus, self.num_shards) if cap is not None]
        wanted = min([max(1, 2 * now), *caps])
        return wanted if (caps or is_waiting) and wanted > now else None
