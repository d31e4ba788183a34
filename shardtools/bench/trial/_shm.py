"""How large and how full shared memory is."""

import os


def shared_memory() -> tuple[int, int] | None:
    """Size and free bytes of ``/dev/shm``; None where there is none."""
    try:
        stat = os.statvfs("/dev/shm")
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def shm_share() -> float | None:
    """How full ``/dev/shm`` is, 0 to 1."""
    shm = shared_memory()
    return None if shm is None or not shm[0] else 1 - shm[1] / shm[0]
