"""How many processes a look at stored shards is worth."""

from collections.abc import Sequence

from shardtools.datasets import MAX_HELD_BYTES
from shardtools.engines import Engine, num_cores
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial

# Starting worker processes takes longer than reading this much.
_WORTH_WORKERS_BYTES = 256 << 20


def fitting_engine(workers: int | None, shard_bytes: Sequence[int]) -> Engine:
    """So many worker processes for shards of these lengths; None: one for each core where there is enough to read, else none.

    A shard that has to be mapped is never read in this process: a file that is cut meanwhile ends the process that reads it.
    """
    is_little = workers == 1 or len(shard_bytes) < 2 or (workers is None and sum(shard_bytes) < _WORTH_WORKERS_BYTES)
    if is_little and max(shard_bytes, default=0) <= MAX_HELD_BYTES:
        return Serial()
    return Processes(min(workers or num_cores(), len(shard_bytes)))
