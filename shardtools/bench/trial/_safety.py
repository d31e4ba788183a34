"""What a loader will take of shared memory and descriptors, from its first batch on; and whether that is there."""

import resource
from typing import Any

from shardtools.bench.leaves import leaves
from shardtools.bench.spec import Settings
from shardtools.units import format_bytes

_PAGE_BYTES = 4096
_SAFE_SHARE = 0.8
_HELD_BATCHES = 2
"""Beside the queue of W·P: one just returned, one still held by the caller."""


class RefusedError(Exception):
    """The trial is not run: it would take more than there is."""


def batch_facts(batch: Any) -> dict[str, int]:
    """Bytes and tensors of a collated batch, and what it takes of shared memory."""
    sizes = [leaf.tensor.numel() * leaf.tensor.element_size() for leaf in leaves(batch)]
    in_pages = sum(-(-size // _PAGE_BYTES) * _PAGE_BYTES for size in sizes)
    return {"bytes": sum(sizes), "tensors": len(sizes), "shm_bytes": in_pages}


def predicted(batch: dict[str, int], settings: Settings) -> dict[str, int]:
    """``shm_bytes`` is the estimate (W·P + 1)·b, ``shm_bound_bytes`` (W·P + 2)·b, which was never exceeded; ``fds`` k·(W·P + 2).

    Nothing where there are no workers: nothing is sent.
    """
    queue = settings.num_workers * settings.prefetch_factor
    if not queue:
        return {"shm_bytes": 0, "shm_bound_bytes": 0, "fds": 0}
    held = queue + _HELD_BATCHES
    return {"shm_bytes": (queue + 1) * batch["shm_bytes"], "shm_bound_bytes": held * batch["shm_bytes"], "fds": held * batch["tensors"]}


def refuse_unsafe(foreseen: dict[str, int], batch: dict[str, int], free_bytes: int | None) -> None:
    """``free_bytes`` were free in shared memory before the loader began; None where it is not known. Raises RefusedError."""
    if free_bytes is not None and foreseen["shm_bound_bytes"] > _SAFE_SHARE * free_bytes:
        raise RefusedError(
            f"not run: shared memory {format_bytes(foreseen['shm_bound_bytes'])} of {format_bytes(free_bytes)} free in /dev/shm; "
            "use fewer workers, a lower prefetch factor, smaller batches, or a larger /dev/shm"
        )
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and foreseen["fds"] > _SAFE_SHARE * limit:
        raise RefusedError(
            f"not run: {foreseen['fds']:,} file descriptors of {limit:,} for {batch['tensors']:,} tensors a batch; "
            "collate into fewer tensors, use a lower prefetch factor, or raise ulimit -n"
        )
