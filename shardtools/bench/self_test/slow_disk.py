"""The kernel's own throttle of a disk, for the processes of a trial alone: a control group whose reads are counted out.

Only whoever may write control groups has it: root as a rule, and not in most containers. Source: the kernel's
admin-guide/cgroup-v1/blkio-controller and admin-guide/cgroup-v2, ``io.max``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shardtools.bench.counters.device import Roots, device_under
from shardtools.bench.not_measured import Unknown, read_text

_BLKIO = "/sys/fs/cgroup/blkio"
_UNIFIED = "/sys/fs/cgroup"
_NAME = "shardtools-self-test-"


@contextmanager
def slow_disk(folder: str, reads_per_second: int) -> Iterator[None]:
    """A group for the trials of this process, whose reads from the disk under ``folder`` are throttled; removed at the end.

    Raises Unknown, saying why, where there is no such throttle for this user.
    """
    number = _disk_number(folder)
    group = _group_of(os.getpid())
    try:
        os.mkdir(group)
    except OSError as error:
        raise Unknown(f"a control group cannot be made at {group}: {error.strerror}") from None
    try:
        _throttle(group, number, reads_per_second)
        yield
    finally:
        with suppress(OSError):  # some process of a trial is still ending; an empty group costs nothing
            os.rmdir(group)


def enter(owner: int) -> None:
    """This process, and all it starts, join the group of ``owner``."""
    with open(f"{_group_of(owner)}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))


def _group_of(owner: int) -> str:
    root = _BLKIO if os.path.isdir(_BLKIO) else _UNIFIED
    return f"{root}/{_NAME}{owner}"


def _disk_number(folder: str) -> str:
    """``major:minor`` of the whole disk: partitions are not throttled by themselves."""
    disks = device_under(folder, Roots()).disks
    if len(disks) != 1:
        raise Unknown(f"the files lie on {len(disks)} disks, and one is throttled")
    return read_text(f"/sys/class/block/{disks[0].replace('/', '!')}/dev").strip()


def _throttle(group: str, number: str, reads_per_second: int) -> None:
    version_1 = f"{group}/blkio.throttle.read_iops_device"
    path, rule = (
        (version_1, f"{number} {reads_per_second}")
        if os.path.exists(version_1)
        else (f"{group}/io.max", f"{number} riops={reads_per_second}")
    )
    try:
        with open(path, "w") as file:
            file.write(rule)
    except OSError as error:
        raise Unknown(f"{path} does not take a limit: {error.strerror}") from None
