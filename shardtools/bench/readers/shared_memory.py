"""The shared memory of StreamingDataset, whose names are of the whole host: told apart by process, and freed.

Source: mosaicml-streaming 0.13, ``base/shared/prefix.py`` and ``base/constant.py``.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shardtools.mosaic import free_blocks

_LOCKS = ("barrier_filelock", "cache_filelock")
_FIRST = 10_000_000
_NUMBERS = 16
"""How many datasets one process may open in turn."""


@contextmanager
def shared_memory_apart() -> Iterator[None]:
    """In it, StreamingDataset names its memory by numbers of this process alone: the first free one is a race between jobs of a host."""
    module = vars(sys.modules["streaming.base.shared.prefix"])
    before, numbers = module["_each_prefix_int"], _numbers(os.getpid())
    module["_each_prefix_int"] = lambda: iter(numbers)
    try:
        yield
    finally:
        module["_each_prefix_int"] = before


def free_shared_memory(pid: int, folder: str | None = None) -> int:
    """Removes what a process of that id, and nobody else, left of StreamingDataset; also where it was killed.

    ``folder`` is the one it had for temporary files. Returns how many blocks were there.
    """
    num_freed = free_blocks(_numbers(pid))
    for number in _numbers(pid):
        for name in _LOCKS:
            with suppress(OSError):
                os.unlink(os.path.join(tempfile.gettempdir() if folder is None else folder, f"{number:06}_{name}"))
    return num_freed


def _numbers(pid: int) -> range:
    return range(_FIRST + pid * _NUMBERS, _FIRST + (pid + 1) * _NUMBERS)
