"""What a loader will take of shared and page-locked memory and of descriptors, told from its first batch; and whether that is there."""

import resource
from typing import Any

from shardtools.bench.leaves import leaves
from shardtools.bench.spec import Copy, Settings
from shardtools.bench.trial._steps import MOST_AHEAD
from shardtools.units import format_bytes

_PAGE_BYTES = 4096
_SAFE_SHARE = 0.8
_SAFE_RAM_SHARE = 0.7
_HELD_BATCHES = 2
"""Beside the queue of W·P: one just returned, one still held by the caller."""


class RefusedError(Exception):
    """The trial is not run: it would take more than there is."""


def batch_facts(batch: Any) -> dict[str, int]:
    """Bytes and tensors of a collated batch, and what it takes of shared memory (whole pages) and of page-locked memory.

    torch pins blocks of a power of two. Source: ``torch.cuda.host_memory_stats``.
    """
    sizes = [leaf.tensor.numel() * leaf.tensor.element_size() for leaf in leaves(batch)]
    in_pages = sum(-(-size // _PAGE_BYTES) * _PAGE_BYTES for size in sizes)
    return {"bytes": sum(sizes), "tensors": len(sizes), "shm_bytes": in_pages, "pinned_bytes": sum(map(_block_bytes, sizes))}


def _block_bytes(num_bytes: int) -> int:
    return 1 << (num_bytes - 1).bit_length() if num_bytes else 0


def predicted(batch: dict[str, int], settings: Settings, copy: Copy) -> dict[str, int]:
    """``shm_bytes`` is the estimate (W·P + 1)·b, ``shm_bound_bytes`` (W·P + 2)·b, which was never exceeded; ``fds`` k·(W·P + 2).

    Nothing of these where there are no workers: nothing is sent. ``pinned_bound_bytes``: as many batches in blocks of a power of two,
    and where the host does not wait for copies those it may be ahead of the device by.
    """
    queue = settings.num_workers * settings.prefetch_factor
    held = queue + _HELD_BATCHES
    sent = held if queue else 0
    pinned = held + (0 if copy == "blocking" else MOST_AHEAD) if settings.pin_memory else 0
    return {
        "shm_bytes": (queue + 1) * batch["shm_bytes"] if queue else 0,
        "shm_bound_bytes": sent * batch["shm_bytes"],
        "fds": sent * batch["tensors"],
        "pinned_bound_bytes": pinned * batch["pinned_bytes"],
    }


def refuse_unsafe(foreseen: dict[str, int], batch: dict[str, int], free_bytes: int | None, usable_bytes: int | None) -> None:
    """``free_bytes`` were free in shared memory and ``usable_bytes`` of memory in all before the loader began; None: not known.

    What processes take for themselves is not foreseen. Raises RefusedError.
    """
    if free_bytes is not None and foreseen["shm_bound_bytes"] > _SAFE_SHARE * free_bytes:
        raise RefusedError(
            f"not run: shared memory {format_bytes(foreseen['shm_bound_bytes'])} of {format_bytes(free_bytes)} free in /dev/shm; "
            "use fewer workers, a lower prefetch factor, smaller batches, or a larger /dev/shm"
        )
    in_memory = foreseen["shm_bound_bytes"] + foreseen["pinned_bound_bytes"]
    if usable_bytes is not None and in_memory > _SAFE_RAM_SHARE * usable_bytes:
        raise RefusedError(
            f"not run: batches take {format_bytes(in_memory)} of {format_bytes(usable_bytes)} usable memory; "
            "use fewer workers, a lower prefetch factor, or smaller batches"
        )
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and foreseen["fds"] > _SAFE_SHARE * limit:
        raise RefusedError(
            f"not run: {foreseen['fds']:,} file descriptors of {limit:,} for {batch['tensors']:,} tensors a batch; "
            "collate into fewer tensors, use a lower prefetch factor, or raise ulimit -n"
        )
