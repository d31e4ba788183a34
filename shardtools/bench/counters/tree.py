"""A process and all it started, followed while they come and go, so that nothing is counted twice and little is missed."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from shardtools.bench.counters.process import (
    ProcessIo,
    ProcessStat,
    children,
    children_by_scan,
    num_open_files,
    parse_io,
    parse_pss,
    parse_stat,
)
from shardtools.bench.not_measured import Unknown, read_text

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAX_PASSES = 5


@dataclass(frozen=True)
class TreeUsage:
    """Sums over the tree at one moment; CPU time and bytes since each process began."""

    cpu_s: float
    rss_bytes: int
    """Pages shared by several processes count in each."""
    rchar: int | None
    read_bytes: int | None
    io_reason: str
    num_processes: int


@dataclass(frozen=True)
class _Member:
    stat: ProcessStat
    io: ProcessIo | None


class ProcessTree:
    """``root`` and its descendants. A descendant that loses its parent is followed on; one that lives shorter than the time
    between two calls of ``usage`` is counted when its parent waits for it."""

    def __init__(self, root: int, proc: str = "/proc") -> None:
        self._root = root
        self._proc = proc
        self._members: dict[int, _Member] = {}
        """In the order found: parents before their children."""
        self._gone_ticks = 0
        self._gone_io = ProcessIo(0, 0)
        self._io_reason = ""
        self._scans = False

    @property
    def pids(self) -> list[int]:
        return list(self._members)

    def usage(self) -> TreeUsage:
        """Reads every member. Raises Unknown where the root was never seen."""
        self._find_new()
        for _ in range(_MAX_PASSES):
            # The kernel moves what a process used to its parent at the moment the parent waits for it. Parents are read first,
            # and again after a member was found gone: what is read of a child is then not yet, what is gone already in the parent.
            if not self._read_all():
                break
        if not self._members and not self._gone_ticks:
            raise Unknown(f"the process has ended before it was looked at, or {self._proc} has no processes")
        return self._sums()

    def pss_bytes(self, between: Callable[[], None] = lambda: None) -> int:
        """Memory, shared pages divided among those who share them. Raises Unknown where any member's cannot be read.

        Takes about 10 ms for a process that has torch loaded; ``between`` is called after each.
        """
        found = []
        for pid in self.pids:
            try:
                found.append(parse_pss(read_text(f"{self._proc}/{pid}/smaps_rollup")))
            except Unknown:
                if self._lives(pid):
                    raise
            between()
        if not found:
            raise Unknown("the process has ended")
        return sum(found)

    def most_open_files(self) -> int:
        """Descriptors of the member that holds most: the limit is per process. Raises Unknown where none can be read."""
        most, reason = None, "the process has ended"
        for pid in self.pids:
            try:
                most = max(most or 0, num_open_files(self._proc, pid))
            except Unknown as unknown:
                reason = str(unknown)
        if most is None:
            raise Unknown(reason)
        return most

    def _find_new(self) -> None:
        by_scan = children_by_scan(self._proc) if self._scans else None
        pending = [self._root, *self._members]
        seen: set[int] = set()
        while pending:
            pid = pending.pop(0)
            if pid in seen:
                continue
            seen.add(pid)
            if pid not in self._members and (member := self._read(pid)):
                self._members[pid] = member
            if pid in self._members:
                try:
                    pending += children(self._proc, pid) if by_scan is None else by_scan.get(pid, [])
                except Unknown:
                    self._scans = True
                    return self._find_new()
        return None

    def _read_all(self) -> bool:
        """Whether a member was found gone."""
        gone: dict[int, _Member] = {}
        for pid, known in list(self._members.items()):
            member = self._read(pid)
            if member is None or member.stat.start_ticks != known.stat.start_ticks:
                gone[pid] = self._members.pop(pid)
            else:
                self._members[pid] = member
        for member in gone.values():
            if not self._is_counted(member, gone):
                self._keep(member)
        return bool(gone)

    def _is_counted(self, member: _Member, gone: dict[int, _Member]) -> bool:
        """Whether what a gone member used is now in an ancestor that lives, each having waited for its child, as parents do."""
        parent = member.stat.parent
        while parent in gone:
            parent = gone[parent].stat.parent
        return parent in self._members

    def _keep(self, member: _Member) -> None:
        self._gone_ticks += member.stat.cpu_ticks
        if member.io is not None:
            self._gone_io = ProcessIo(self._gone_io.rchar + member.io.rchar, self._gone_io.read_bytes + member.io.read_bytes)

    def _read(self, pid: int) -> _Member | None:
        """None where the process is gone."""
        try:
            stat = parse_stat(read_text(f"{self._proc}/{pid}/stat"))
        except Unknown:
            return None
        try:
            return _Member(stat, parse_io(read_text(f"{self._proc}/{pid}/io")))
        except Unknown as unknown:
            if self._lives(pid):
                self._io_reason = str(unknown)
                return _Member(stat, None)
            return None

    def _lives(self, pid: int) -> bool:
        return os.path.exists(f"{self._proc}/{pid}/stat")

    def _sums(self) -> TreeUsage:
        members = list(self._members.values())
        counted = [member.io for member in members if member.io is not None]
        usage = TreeUsage(
            (self._gone_ticks + sum(member.stat.cpu_ticks for member in members)) / _TICKS_PER_SECOND,
            sum(member.stat.rss_pages for member in members) * _PAGE_BYTES,
            self._gone_io.rchar + sum(io.rchar for io in counted),
            self._gone_io.read_bytes + sum(io.read_bytes for io in counted),
            self._io_reason,
            len(members),
        )
        return usage if not self._io_reason else replace(usage, rchar=None, read_bytes=None)
