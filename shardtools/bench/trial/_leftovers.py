"""What an ended trial may leave on the machine, and its removal: only of what can be told to be the trial's own.

Of other systems than Linux nothing of that is known, and nothing is removed.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator

from shardtools.bench.processes import all_processes, group_members

_SHM = "/dev/shm"
TOKEN_VARIABLE = "SHARDTOOLS_TRIAL"
"""Set for a trial's process, so that whatever it starts can be known for its own, in whatever group."""


def token_of(folder: str) -> str:
    """What the processes of the trial with that folder are marked with."""
    return os.path.basename(folder)


def _strays(token: str, group: int) -> list[int]:
    """Processes that a trial started, directly or not, and that left its group."""
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for pid, state, of in all_processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if of != group and state not in "ZX" and wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def process_name(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return "unknown"


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
    """Removes objects a trial had in use, unless a process outside its group uses them too. Returns those that were there."""
    wanted = [name for name in names if os.path.exists(f"{_SHM}/{name}")]
    if not wanted:
        return []
    others = _used_by(pid for pid, _, of in all_processes() if of != group)
    removed = []
    for name in wanted:
        if name not in others:
            with contextlib.suppress(OSError):
                os.unlink(f"{_SHM}/{name}")
                removed.append(name)
    return removed


def kill_strays(token: str, group: int) -> list[str]:
    """End what a trial started and took out of its group. Returns who that was."""
    found = []
    for pid in _strays(token, group):
        found.append(f"process {pid} ({process_name(pid)})")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found
