"""Processors a process may run on."""

import os


def allowed_cpus(pid: int = 0) -> tuple[int, ...]:
    """Numbers of them; 0 asks for this process. Empty where the system does not tell."""
    try:
        return tuple(sorted(os.sched_getaffinity(pid)))
    except (AttributeError, OSError):
        return ()


def num_allowed_cpus() -> int:
    return len(allowed_cpus()) or os.cpu_count() or 1
