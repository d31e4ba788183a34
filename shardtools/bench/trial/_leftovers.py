"""What an ended trial may leave on the machine, and its removal: only of what can be told to be the trial's own.

Of other systems than Linux nothing is known, and nothing is removed but processes of the group and the folder.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator

_SHM = "/dev/shm"
_POLL_SECONDS = 0.01
TOKEN_VARIABLE = "SHARDTOOLS_TRIAL"
"""Set for a trial's process, so that whatever it starts can be known for its own, in whatever group."""


def token_of(folder: str) -> str:
    """What the processes of the trial with that folder are marked with."""
    return os.path.basename(folder)


def group_members(group: int) -> list[int]:
    """Processes of a group that still run; ended ones nobody took note of are not counted."""
    return [pid for pid, state, of in _processes() if of == group and state not in "ZX"]


def _strays(token: str, group: int) -> list[int]:
    """Processes that a trial started, directly or not, and that left its group."""
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for pid, state, of in _processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if of != group and state not in "ZX" and wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def _processes() -> Iterator[tuple[int, str, int]]:
    """Process, state, group."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if name.isdecimal():
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    words = file.read().rpartition(")")[2].split()
                yield int(name), words[0], int(words[2])


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
    others = _used_by(pid for pid, _, of in _processes() if of != group)
    removed = []
    for name in wanted:
        if name not in others:
            with contextlib.suppress(OSError):
                os.unlink(f"{_SHM}/{name}")
                removed.append(name)
    return removed


def remove_folder(folder: str) -> None:
    """A trial's own folder, all it holds included."""
    shutil.rmtree(folder, ignore_errors=True)


def end_group(group: int, grace_seconds: float) -> None:
    """End the processes of a group: by SIGTERM, and those that are there after the grace by SIGKILL; see them gone.

    The group's first process must not have been waited for yet: while it is there, dead or alive, nobody else gets its number.
    """
    if grace_seconds > 0:
        _signal_group(group, signal.SIGTERM)
        _gone(group, grace_seconds)
    _signal_group(group, signal.SIGKILL)
    _gone(group, 5.0)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _gone(group: int, seconds: float) -> bool:
    """Wait until no process of the group runs."""
    latest = time.monotonic() + seconds
    while group_members(group):
        if time.monotonic() > latest:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def wait_for_group(group: int, seconds: float) -> bool:
    """Whether all processes of a group end by themselves in that time."""
    return _gone(group, seconds)


def kill_strays(token: str, group: int) -> list[str]:
    """End what a trial started and took out of its group. Returns who that was."""
    found = []
    for pid in _strays(token, group):
        found.append(f"process {pid} ({process_name(pid)})")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found
