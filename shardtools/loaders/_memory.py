"""How a worker's memory is given back: not after every sample."""

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_BYTES = 32 << 20
"""The most that glibc itself comes to when it adapts; by luck of what lies on top of the heap, or not."""


def keep_freed_memory() -> None:
    """Of glibc's allocator, for this process: what one decoded image gave back serves the next.

    Else each image's buffers may be returned to the system and fetched again page by page: 375 to 543 faults for a JPEG of 640 x 480, a
    fifth of the time it takes to decode, where 43 are enough. Costs at most 64 MiB a process. Other allocators are left as they are.
    Source: mallopt(3), M_MMAP_THRESHOLD, "Dynamic adjustment of the mmap threshold".
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
            mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_BYTES)
