"""Shared memory of System V, as ``ipcs -m`` lists it. torch and Python use the other kind, files in ``/dev/shm``.

Source: proc_sysvipc(5), shmctl(2).
"""

from dataclasses import asdict, dataclass
from typing import Any

from shardtools.bench.not_measured import Unknown

_NAMES = ("key", "shmid", "perms", "size", "nattch", "uid")
_IS_ENDING, _IS_LOCKED, _PERMISSIONS = 0o1000, 0o2000, 0o777


@dataclass(frozen=True)
class Segment:
    """One segment."""

    key: int
    shmid: int
    uid: int
    permissions: int
    segment_bytes: int
    num_attached: int
    is_ending: bool
    """Goes when the last process lets go of it."""
    is_locked: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse_segments(text: str) -> list[Segment]:
    """Of ``/proc/sysvipc/shm``. Raises Unknown where it is not as expected."""
    head, *lines = text.splitlines() or [""]
    places = head.split()
    try:
        return [_segment(dict(zip(places, line.split(), strict=True))) for line in lines]
    except (KeyError, ValueError):
        raise Unknown("/proc/sysvipc/shm is not as expected") from None


def _segment(values: dict[str, str]) -> Segment:
    key, shmid, mode, size, attached, uid = (int(values[name], 8 if name == "perms" else 10) for name in _NAMES)
    return Segment(key & 0xFFFFFFFF, shmid, uid, mode & _PERMISSIONS, size, attached, bool(mode & _IS_ENDING), bool(mode & _IS_LOCKED))
