"""What ``bench`` is asked for, as one frozen value."""

from dataclasses import dataclass, field

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.spec import CacheState, Consumer, Settings, Workload
from shardtools.errors import UsageError


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
    min_seconds: float = 5.0
    """Of each measured window."""
    timeout_seconds: float = 120.0
    """Of each trial."""

    def __post_init__(self) -> None:
        if not self.uris:
            raise UsageError("expected data to read, got none; name small files, shards, or both")
        if self.cache == "cold-full" and not self.allow_drop_caches:
            raise UsageError(
                "expected --allow-drop-caches with --cache cold-full, since it empties the page cache of the whole machine, got none; "
                "add it where that disturbs nobody, or take --cache cold-data"
            )
        if self.settings.pin_memory and self.consumer.device == "cpu":
            raise UsageError("expected --gpu with --pin-memory, got neither a GPU nor anything to pin for; leave one out or add the other")
