"""What one process has used so far.

Source: proc_pid_stat(5), proc_pid_io(5), proc_pid_smaps(5), proc_pid_fd(5).
"""

import os
from dataclasses import dataclass

from shardtools.bench.not_measured import Unknown, read_text

_PPID, _PGRP, _UTIME, _STARTTIME, _RSS = 1, 2, 11, 19, 21
"""Places in ``stat`` after the name, the state being 0."""
_MINFLT, _MAJFLT, _VSIZE, _CPU = 7, 9, 20, 36
_OWN_TICKS = (11, 12, 40)


@dataclass(frozen=True)
class ProcessStat:
    """One line of ``/proc/PID/stat``; times in clock ticks, memory in pages."""

    state: str
    parent: int
    cpu_ticks: int
    """User and system time, with that of all children the process has waited for."""
    start_ticks: int
    """After boot: with the id, it names the process for good."""
    rss_pages: int
    group: int = 0


@dataclass(frozen=True)
class ProcessUse:
    """The same line, as ``pidstat`` shows it: what the process used itself, without its children."""

    command: str
    start_ticks: int
    cpu_ticks: tuple[int, int, int]
    """User, that of guests of a virtual machine in it; system; guests'."""
    faults: tuple[int, int]
    """Minor; major, which waited for a disk."""
    virtual_bytes: int
    rss_pages: int
    last_cpu: int


@dataclass(frozen=True)
class ProcessIo:
    """``/proc/PID/io``, with what all children the process has waited for had counted."""

    rchar: int
    """Bytes that calls of read returned, from any kind of file: pipes and the page cache too."""
    read_bytes: int
    """Bytes the process caused to be fetched from block devices, read-ahead included."""


def parse_stat(text: str) -> ProcessStat:
    # The name may hold spaces and brackets; it ends at the last closing one.
    words = text.rpartition(")")[2].split()
    try:
        ticks = sum(int(word) for word in words[_UTIME : _UTIME + 4])
        return ProcessStat(words[0], int(words[_PPID]), ticks, int(words[_STARTTIME]), int(words[_RSS]), int(words[_PGRP]))
    except (IndexError, ValueError):
        raise Unknown("/proc/PID/stat is not as expected") from None


def parse_use(text: str) -> ProcessUse:
    """Of the same file as ``parse_stat``."""
    before, _, after = text.rpartition(")")
    words = after.split()
    try:
        ticks = [int(words[place]) for place in _OWN_TICKS]
        minor, major, virtual, rss, started, cpu = (int(words[place]) for place in (_MINFLT, _MAJFLT, _VSIZE, _RSS, _STARTTIME, _CPU))
    except (IndexError, ValueError):
        raise Unknown("/proc/PID/stat is not as expected") from None
    return ProcessUse(before.partition("(")[2], started, (ticks[0], ticks[1], ticks[2]), (minor, major), virtual, rss, cpu)


def parse_waited(text: str) -> int:
    """Nanoseconds a process was ready to run and no processor was free: ``/proc/PID/schedstat``."""
    words = text.split()
    if len(words) < 2 or not words[1].isdecimal():
        raise Unknown("/proc/PID/schedstat is not as expected")
    return int(words[1])


def parse_io(text: str) -> ProcessIo:
    values = _named_numbers(text)
    try:
        return ProcessIo(values["rchar"], values["read_bytes"])
    except KeyError as missing:
        raise Unknown(f"/proc/PID/io has no {missing.args[0]}: the kernel was built without the counter") from None


def parse_pss(text: str) -> int:
    """Bytes of ``/proc/PID/smaps_rollup``: pages that n processes share count as 1/n each."""
    values = _named_numbers(text)
    if "Pss" not in values:
        raise Unknown("/proc/PID/smaps_rollup has no Pss")
    return values["Pss"] * 1024


def parse_private(text: str) -> int:
    """Bytes of the same file that no other process shares."""
    values = _named_numbers(text)
    if "Private_Dirty" not in values:
        raise Unknown("/proc/PID/smaps_rollup has no Private_Dirty")
    return (values["Private_Dirty"] + values.get("Private_Clean", 0)) * 1024


def parse_anonymous(text: str) -> int:
    """Bytes of the same file that are of no file, whether shared since a fork or not."""
    values = _named_numbers(text)
    if "Anonymous" not in values:
        raise Unknown("/proc/PID/smaps_rollup has no Anonymous")
    return values["Anonymous"] * 1024


def _named_numbers(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        name, separator, rest = line.partition(":")
        first = rest.split()[:1]
        if separator and first and first[0].isdecimal():
            found[name] = int(first[0])
    return found


def num_open_files(proc: str, pid: int) -> int:
    """Descriptors a process holds now. Raises Unknown where it is gone or another user's."""
    folder = f"{proc}/{pid}/fd"
    try:
        # Since Linux 6.2 the folder's size is the count, which spares making a name of each; it was 0 before.
        return os.stat(folder).st_size or len(os.listdir(folder))
    except PermissionError:
        raise Unknown("the process is another user's") from None
    except OSError:
        raise Unknown("the process has ended") from None


def children(proc: str, pid: int) -> list[int]:
    """Processes that any thread of ``pid`` has started and that live. Raises Unknown where the kernel does not list them."""
    found: list[int] = []
    try:
        threads = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"{proc}/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"{proc}/{pid}/task/{thread}/stat"):
                raise Unknown("the kernel was built without /proc/PID/task/TID/children") from None
        except OSError:
            continue
    return found


def children_by_scan(proc: str) -> dict[int, list[int]]:
    """Every process's children, from a pass over all processes: dear where there are thousands."""
    found: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdecimal():
            try:
                stat = parse_stat(read_text(f"{proc}/{name}/stat"))
            except Unknown:
                continue
            found.setdefault(stat.parent, []).append(int(name))
    return found
