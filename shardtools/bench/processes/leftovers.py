"""The end of a process we started with all it started, and what that leaves on the machine: only what can be told to be its own.

Of other systems than Linux nothing of that is known, and nothing but the group is ended.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator

from shardtools.bench.processes.groups import all_processes, freeze, group_members, signal_group, signal_one, wait_for_group

_SHM = "/dev/shm"
_KILLED_SECONDS = 5.0
"""In which killed processes are gone, unless the kernel holds them."""
TOKEN_VARIABLE = "SHARDTOOLS_TRIAL"
"""Set for a process we start, so that whatever it starts can be known for its own, in whatever group."""


def token_of(folder: str) -> str:
    """What the processes with that private folder are marked with."""
    return os.path.basename(folder)


def end_group(group: int) -> set[str]:
    """End the processes of a group and see them gone. Returns the shared memory they had, by name.

    They are stopped first: what they have open is then all they have, also an object that one was about to unlink. The group's first
    process must not have been waited for yet: while it is there, dead or alive, nobody else gets its number.
    """
    names = _used_by(freeze(lambda: group_members(group)))
    signal_group(group, signal.SIGKILL)
    wait_for_group(group, _KILLED_SECONDS)
    return names


def kill_strays(token: str, group: int) -> list[str]:
    """End what a process started and took out of its group. Returns who that was."""
    found = []
    for pid in _strays(token, group):
        found.append(described(pid))
        signal_one(pid, signal.SIGKILL)
    return found


def _strays(token: str, group: int) -> list[int]:
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for pid, stat in all_processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if stat.group != group and stat.state not in "ZX" and wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def described(pid: int) -> str:
    """For people."""
    name = "unknown"
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        name = file.read().strip()
    return f"process {pid} ({name})"


def shared_memory_of(group: int) -> set[str]:
    """Names in ``/dev/shm`` that processes of a group have open or mapped."""
    return _used_by(group_members(group))


def _used_by(pids: Iterable[int]) -> set[str]:
    return {name for pid in pids for path in (*_mapped(pid), *_opened(pid)) if (name := _shm_name(path))}


def _shm_name(path: str) -> str | None:
    """None for all else, and for what is unlinked already."""
    folder, _, name = path.rpartition("/")
    return name if folder == _SHM and not name.endswith(" (deleted)") else None


def _mapped(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if _SHM in line:
                yield line.rstrip("\n").split(maxsplit=5)[-1]


def _opened(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                yield os.readlink(f"{folder}/{name}")


def remove_shared_memory(names: Iterable[str], group: int | None = None) -> list[str]:
    """Removes objects a process had in use, unless one outside its group uses them too. Returns those that were there."""
    wanted = [name for name in names if os.path.exists(f"{_SHM}/{name}")]
    if not wanted:
        return []
    others = _used_by(pid for pid, stat in all_processes() if stat.group != group)
    removed = []
    for name in wanted:
        if name not in others:
            with contextlib.suppress(OSError):
                os.unlink(f"{_SHM}/{name}")
                removed.append(name)
    return removed
