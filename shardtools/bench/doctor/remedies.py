"""Exact commands that raise a limit, fit for where the process runs."""

from shardtools.bench.shm_size import ShmSize
from shardtools.units import format_bytes


def larger_shm(needed_bytes: int, is_container: bool) -> str:
    """What gives ``/dev/shm`` room for so many bytes and half as much again."""
    size = ShmSize.for_bytes(needed_bytes)
    if is_container:
        return (
            f"start the container with `docker run --shm-size={size.docker}`, "
            f"or mount an emptyDir {{medium: Memory, sizeLimit: {size.kubernetes}}} there"
        )
    return f"enlarge it: `sudo mount -o remount,size={size.docker} /dev/shm`"


def more_descriptors(needed: int, hard: int | None, is_container: bool) -> str:
    """What lets a process open so many files, a fifth of them kept for its own."""
    limit = 1024
    while 0.8 * limit < needed:
        limit *= 2
    if hard is None or limit <= hard:
        return f"run `ulimit -n {limit}` before training"
    raised = f"`docker run --ulimit nofile={limit}:{limit}`" if is_container else f"`* hard nofile {limit}` in /etc/security/limits.conf"
    return f"raise it by {raised}, or collate into fewer tensors"


def of_size(num_bytes: float | None) -> str:
    """For a sentence."""
    return "n/a" if num_bytes is None else format_bytes(num_bytes)
