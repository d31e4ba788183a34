"""The processes to be looked at: one and all it started, or this user's that have torch loaded, their DataLoader workers with them."""

import os

from shardtools.bench.counters.process import children, children_by_scan
from shardtools.bench.counters.tree import ProcessTree
from shardtools.bench.not_measured import Unknown, read_text

_MARK = "libtorch"
"""In the maps of every process that has imported torch, and of those forked from it."""


class AtHand:
    """Which processes are meant, found anew at each look: workers come and go."""

    def __init__(self, pid: int | None, proc: str) -> None:
        self._proc = proc
        self._tree = None if pid is None else ProcessTree(pid, proc)

    def pids(self) -> list[int]:
        """Empty when the named process and all it started have ended, or where nothing of this user has torch loaded."""
        if self._tree is None:
            own = {os.getpid(), *descendants(os.getpid(), self._proc)}
            return [pid for pid in _all_of_this_user(self._proc) if pid not in own and _has_torch(pid, self._proc)]
        try:
            self._tree.usage()
        except Unknown:
            return []
        return self._tree.pids


def descendants(pid: int, proc: str) -> list[int]:
    """Processes that ``pid`` started, and those they started."""
    try:
        found = children(proc, pid)
    except Unknown:
        found = children_by_scan(proc).get(pid, [])
    return found + [inner for child in found for inner in descendants(child, proc)]


def _all_of_this_user(proc: str) -> list[int]:
    found = []
    for name in os.listdir(proc) if os.path.isdir(proc) else ():
        try:
            if name.isdecimal() and os.stat(f"{proc}/{name}").st_uid == os.getuid():
                found.append(int(name))
        except OSError:
            continue
    return sorted(found)


def _has_torch(pid: int, proc: str) -> bool:
    try:
        return _MARK in read_text(f"{proc}/{pid}/maps")
    except Unknown:
        return False
