"""How a dataset is read: one frozen value."""

from dataclasses import dataclass, field

from shardtools.errors import UsageError
from shardtools.loaders._whole import whole
from shardtools.loaders._world import LastBatch
from shardtools.units import Budget


@dataclass(frozen=True)
class LoaderOptions:
    """What ``open_dataset`` needs beyond the daily; every default is safe to keep."""

    rank: int | None = None
    """None, for both: those of ``torch.distributed`` where its process group exists, else one rank of one."""
    world_size: int | None = None
    last_batch: LastBatch = "short"
    """What becomes of the samples that make no whole global batch. ``short``: every sample once, ranks may differ by one sample, and
    by one batch where there are fewer samples left than ranks. ``pad``: as many batches for all, first samples repeated.
    ``drop``: as many for all, the rest left out. ``DistributedDataParallel`` waits for a rank with a batch less, until its timeout."""
    block_shards: int = 8
    """So many shards are shuffled into one another. More mix better, and are all read at the same time."""
    max_bad: Budget = field(default_factory=Budget)
    """How many bad samples are set aside before reading fails, each worker by what it knows of the others."""
    cache_bytes: int = 64 << 30
    """The most that is kept of shards which are remote or compressed; the longest unused go first."""
    predownload_bytes: int = 1 << 30
    """How much each worker fetches of remote shards before their turn: at most half of ``cache_bytes``, but one shard. 0: nothing."""
    cache_folder: str | None = None
    """Where; None: a folder of the user's below the temporary one."""
    split: str | None = None
    """``train``, ``val`` or whatever the splits of the dataset are called; None: all that is there."""

    def __post_init__(self) -> None:
        if (self.rank is None) != (self.world_size is None):
            raise UsageError(f"expected rank and world_size together, got rank={self.rank} and world_size={self.world_size}")
        if self.split is not None and not isinstance(self.split, str):
            raise UsageError(f"expected split as the name of a split, got {self.split!r}")
        whole("block_shards", self.block_shards, 1)
        if not isinstance(self.max_bad, Budget):
            raise UsageError(f"expected max_bad as a Budget, got {self.max_bad!r}; Budget(10) is a count, Budget.parse('0.5%') a share")
        whole("cache_bytes", self.cache_bytes, 1)
        whole("predownload_bytes", self.predownload_bytes, 0)
