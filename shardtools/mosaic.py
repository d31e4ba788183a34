"""What StreamingDataset leaves in shared memory, whose names are of the whole host; freed by whoever knows which numbers are its own.

Source: mosaicml-streaming 0.13, ``base/shared/prefix.py`` and ``base/constant.py``.
"""

from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import shared_memory

_NAMES = (
    "locals",
    "barrier",
    "next_epoch",
    "cache_usage",
    "shard_states",
    "shard_access_times",
    "resume",
    "epoch_shape",
    "epoch_data",
)


def free_blocks(numbers: Iterable[int]) -> int:
    """Removes every block whose name begins with one of the numbers; how many there were."""
    num_freed = 0
    for number in numbers:
        for name in _NAMES:
            with suppress(FileNotFoundError):
                block = shared_memory.SharedMemory(f"{number:06}_{name}")
                block.close()
                block.unlink()
                num_freed += 1
    return num_freed
