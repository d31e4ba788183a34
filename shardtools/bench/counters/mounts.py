"""Which file system a path is on.

Source: proc_pid_mountinfo(5).
"""

import os
import re
from dataclasses import dataclass

from shardtools.bench.not_measured import Unknown


@dataclass(frozen=True)
class Mount:
    """One line of ``/proc/PID/mountinfo``."""

    device: str
    """``major:minor``; major 0 is no block device."""
    root: str
    """The folder of the file system that is mounted."""
    point: str
    fs: str
    source: str
    options: str
    """Of the mount and of the file system, joined by commas."""

    def option(self, name: str) -> str | None:
        """The value of ``name=value``, None where it is not set."""
        for word in self.options.split(","):
            found, _, value = word.partition("=")
            if found == name:
                return value
        return None


def parse_mountinfo(text: str) -> list[Mount]:
    """In the order mounted. Raises Unknown where a line is not as expected."""
    return [_parse_line(line) for line in text.splitlines() if line]


def _parse_line(line: str) -> Mount:
    before, separator, after = line.partition(" - ")
    front, back = before.split(" "), after.split(" ")
    if not separator or len(front) < 6 or len(back) < 2:
        raise Unknown("/proc/PID/mountinfo is not as expected")
    options = ",".join([front[5], *back[2:3]])
    return Mount(front[2], _unescaped(front[3]), _unescaped(front[4]), back[0], _unescaped(back[1]), _unescaped(options))


def _unescaped(text: str) -> str:
    """Blanks, tabs, line feeds and backslashes are written in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount_of(path: str, mounts: list[Mount]) -> Mount:
    """The mount that ``path``, absolute and without links, is seen through. Raises Unknown where there is none."""
    found = None
    for mount in mounts:
        # Of two on one point, the later lies on top.
        if _is_below(path, mount.point) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    if found is None:
        raise Unknown(f"no mount holds {path}")
    return found


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip(os.sep) + os.sep)
