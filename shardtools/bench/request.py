"""What ``bench`` is asked for, as one frozen value."""

import math
from dataclasses import dataclass, field
from typing import Literal

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.report.gates import Bounds
from shardtools.bench.spec import MAX_WORKERS, MIN_SECONDS, CacheState, Consumer, Settings, Workload
from shardtools.errors import UsageError

Attribute = Literal["first", "all", "none"]
Search = Literal["knee", "grid"]


@dataclass(frozen=True)
class BenchRequest:
    """Data in one or more forms, what is done with a sample, and how it is measured."""

    uris: tuple[str, ...]
    """Of the same samples, the first usually in small files."""
    readers: tuple[str, ...] = ()
    """Empty: of each form the reader its users have."""
    workload: Workload = field(default_factory=Workload)
    settings: Settings = field(default_factory=Settings)
    consumer: Consumer = field(default_factory=Consumer)
    cache: CacheState = "cold-data"
    allow_drop_caches: bool = False
    """For ``cold-full``, which empties the page cache of the whole machine."""
    plan: BlockPlan = field(default_factory=lambda: BlockPlan(seed=0))
    min_seconds: float = MIN_SECONDS
    """Of each measured window."""
    timeout_seconds: float = 120.0
    """Of each trial."""
    attribute: Attribute = "first"
    """The sides of which it is found out what limits the loader."""
    search: Search | None = None
    """For the best settings of the ``DataLoader``, of the side named last: to the knee, or over the full grid."""
    search_seconds: float | None = None
    """What matters most is tried first; when they are over, no further trial begins. None: 150 to the knee, 600 for the grid."""
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        if not self.uris:
            raise UsageError("expected data to read, got none; name small files, shards, or both")
        if self.cache == "cold-full" and not self.allow_drop_caches:
            raise UsageError(
                "expected --allow-drop-caches with --cache cold-full, since it empties the page cache of the whole machine, got none; "
                "add it where that disturbs nobody, or take --cache cold-data"
            )
        given = (self.min_seconds, self.timeout_seconds, self.bounds.ratio, self.bounds.au_percent)
        if not all(math.isfinite(number) for number in (*given, self.consumer.step_ms, self.consumer.launch_cpu_ms) if number is not None):
            raise UsageError("expected finite numbers, got nan or infinity; correct the option")
        if self.settings.num_workers > MAX_WORKERS:
            raise UsageError(f"expected at most {MAX_WORKERS} workers, got {self.settings.num_workers:,}; correct --num-workers")
        if self.search_seconds is not None and self.search is None:
            raise UsageError("expected --matrix with --matrix-seconds, got none; add it, or leave that out")
        if self.bounds.ratio is not None and (self.plan.max_blocks == 1 or len(self.uris) < 2):
            raise UsageError(
                "expected two sides and two blocks or more with --require-ratio, since one trial of each has no interval, got less"
            )
        if self.bounds.au_percent is not None and self.consumer.kind == "none":
            raise UsageError("expected --step-ms, --model or --gpu with --require-au, since nothing else is kept busy, got none of them")
        if self.settings.pin_memory and self.consumer.device == "cpu":
            raise UsageError("expected --gpu with --pin-memory, got neither a GPU nor anything to pin for; leave one out or add the other")
