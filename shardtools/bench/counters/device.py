"""The block device that holds a path, and what is known of it.

Source: sysfs-block and sysfs-class-bdi of the kernel's ABI documentation, https://docs.kernel.org/admin-guide/abi.html.
"""

import os
from dataclasses import asdict, dataclass
from typing import Any

from shardtools.bench.counters.mounts import Mount, mount_of, parse_mountinfo
from shardtools.bench.not_measured import Unknown, read_text

NETWORK = {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "afs", "glusterfs", "9p", "virtiofs"}
"""Types of file systems whose bytes come from elsewhere."""
MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_VIRTUAL_NAMES = ("vd", "xvd", "nbd", "rbd", "loop", "zram", "ram", "drbd")
_VIRTUAL_MODELS = ("virtual", "vmware", "qemu", "elastic block store", "persistentdisk", "ephemeral", "msft", "google", "scaleway")
_MAX_LINKS = 8


@dataclass(frozen=True)
class BlockDevice:
    """Where the bytes of a path are. Counters are those of ``name``; for a stack of devices that is the topmost."""

    name: str
    """As ``/proc/diskstats`` has it: a partition, a whole disk or a mapped device."""
    disks: tuple[str, ...]
    """What ``name`` lies on in the end."""
    rotational: bool | None
    """As the kernel believes; virtual disks often say so wrongly."""
    read_ahead_kb: int | None
    virtual: bool | None
    """True: below it lie caches nobody here can empty. False: no sign of that."""
    virtual_reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"disks": list(self.disks)}


@dataclass(frozen=True)
class Roots:
    """Where the kernel's trees are; others only in tests."""

    proc: str = "/proc"
    sys: str = "/sys"


def mount_under(path: str, roots: Roots) -> Mount:
    """Raises Unknown where the mounts cannot be read."""
    return mount_of(os.path.realpath(path), parse_mountinfo(read_text(f"{roots.proc}/self/mountinfo")))


def is_memory(mount: Mount) -> bool:
    """Whether files lie in memory, and in nothing below it."""
    return mount.fs in MEMORY


def device_under(path: str, roots: Roots) -> BlockDevice:
    """Raises Unknown, saying what is there instead, where no block device can be named."""
    return describe(device_number(path, roots), roots)


def device_number(path: str, roots: Roots) -> str:
    """``major:minor`` of the block device under ``path``, through overlays and file systems that span devices."""
    for _ in range(_MAX_LINKS):
        mount = mount_under(path, roots)
        if not mount.device.startswith("0:"):
            return mount.device
        if mount.fs == "overlay":
            path = _upper_folder(mount)
            continue
        break
    else:
        raise Unknown("too many file systems lie on top of each other")
    if is_memory(mount):
        raise Unknown(f"{mount.fs} is memory, no device")
    if mount.fs in NETWORK or mount.fs.startswith("fuse"):
        raise Unknown(f"{mount.fs} has no block device on this machine")
    return _source_number(mount, roots)


def _upper_folder(mount: Mount) -> str:
    """Where an overlay keeps what was written into it. Layers it only reads are on the same device as a rule, not by law."""
    for name in ("upperdir", "lowerdir"):
        for folder in (mount.option(name) or "").split(":"):
            if folder and os.path.isdir(folder):
                return folder
    raise Unknown("overlay on folders that cannot be seen from here, as in a container: mount the data as a volume to name its device")


def _source_number(mount: Mount, roots: Roots) -> str:
    """btrfs and zfs number themselves; what they were mounted from may be a device."""
    name = os.path.basename(os.path.realpath(mount.source)) if mount.source.startswith("/dev/") else ""
    if not name:
        raise Unknown(f"{mount.fs} does not name a block device")
    return read_text(f"{roots.sys}/class/block/{name}/dev").strip()


def describe(number: str, roots: Roots) -> BlockDevice:
    """The device ``major:minor``. Raises Unknown where sysfs has none."""
    folder = os.path.realpath(f"{roots.sys}/dev/block/{number}")
    if not os.path.isdir(folder):
        raise Unknown(f"device {number} is not in {roots.sys}/dev/block")
    disks = _disks(folder)
    # A partition has no queue of its own, its disk has.
    whole = folder if os.path.isdir(f"{folder}/queue") else os.path.dirname(folder)
    virtual, reason = _virtual(disks, roots)
    return BlockDevice(
        _name(folder),
        tuple(sorted(_name(disk) for disk in disks)),
        {"0": False, "1": True}.get(_text(f"{whole}/queue/rotational")),
        _number(f"{whole}/queue/read_ahead_kb"),
        virtual,
        reason,
    )


def _disks(folder: str) -> list[str]:
    """Folders of the disks under a partition, or under a mapped or RAID device."""
    pending, found = [folder], []
    while pending:
        this = pending.pop()
        if os.path.exists(f"{this}/partition"):
            this = os.path.dirname(this)
        try:
            slaves = sorted(os.listdir(f"{this}/slaves"))
        except OSError:
            slaves = []
        if slaves:
            pending += [os.path.realpath(f"{this}/slaves/{slave}") for slave in slaves]
        elif this not in found:
            found.append(this)
    return found


def _virtual(disks: list[str], roots: Roots) -> tuple[bool | None, str]:
    for disk in disks:
        name, model = _name(disk), _text(f"{disk}/device/model")
        if name.startswith(_VIRTUAL_NAMES) or "/virtio" in disk:
            return True, f"{name} is a virtual disk by its driver"
        if any(word in model.lower() for word in _VIRTUAL_MODELS):
            return True, f"{name} is a virtual disk by its model, {model}"
    try:
        flags = read_text(f"{roots.proc}/cpuinfo")
    except Unknown as unknown:
        return None, str(unknown)
    if any(line.startswith("flags") and "hypervisor" in line.split() for line in flags.splitlines()):
        return True, "the machine is a guest of a hypervisor, which may cache below the disk"
    return False, "neither the driver, nor the model, nor the processor's flags speak of a hypervisor"


def _name(folder: str) -> str:
    # sysfs writes the slash of a name such as cciss/c0d0 as an exclamation mark.
    return os.path.basename(folder).replace("!", "/")


def _text(path: str) -> str:
    try:
        return read_text(path).strip()
    except Unknown:
        return ""


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
