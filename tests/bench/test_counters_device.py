"""The counters of a disk are those of the disk the data lies on: stops a report of the wrong device, or of one where there is none.

Trees of sysfs and lists of mounts are as machines show them; only their roots are moved.
"""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shardtools.bench.counters.device import Roots, describe, device_number, device_under, mount_under
from shardtools.bench.counters.mounts import mount_of, parse_mountinfo
from shardtools.bench.not_measured import Unknown

Machine = Callable[[str, Mapping[str, str], str], Roots]
BARE = "processor\t: 0\nflags\t\t: fpu vme sse2\n"
GUEST = "processor\t: 0\nflags\t\t: fpu vme hypervisor sse2\n"
ROOT = "27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with these mounts and these block devices: by number, the folder of each; links as sysfs has them."""

    def make(mounts: str, files: Mapping[str, str], cpuinfo: str = BARE) -> Roots:
        for name, text in {"proc/self/mountinfo": mounts, "proc/cpuinfo": cpuinfo, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.name == "dev":
                for link in (f"sys/dev/block/{text.strip()}", f"sys/class/block/{path.parent.name}"):
                    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
                    (tmp_path / link).symlink_to(path.parent)
        return Roots(str(tmp_path / "proc"), str(tmp_path / "sys"))

    return make


def nvme(model: str = "Samsung SSD 980") -> dict[str, str]:
    disk = "sys/devices/pci0000:00/nvme/nvme0/nvme0n1"
    return {
        f"{disk}/dev": "259:0\n",
        f"{disk}/queue/rotational": "0\n",
        f"{disk}/queue/read_ahead_kb": "128\n",
        f"{disk}/device/model": f"{model}\n",
        f"{disk}/nvme0n1p2/dev": "259:2\n",
        f"{disk}/nvme0n1p2/partition": "2\n",
    }


def test_a_partition_has_its_own_counters_and_its_disks_queue(machine: Machine) -> None:
    found = device_under("/data", machine(ROOT, nvme(), BARE))
    assert (found.name, found.disks) == ("nvme0n1p2", ("nvme0n1",))
    assert (found.rotational, found.read_ahead_kb, found.virtual) == (False, 128, False)


def test_a_mapped_device_names_the_disks_under_it(machine: Machine, tmp_path: Path) -> None:
    """LVM on a partition: counters of the mapped device, disks as they are, its own queue."""
    dm = "sys/devices/virtual/block/dm-0"
    files = nvme() | {f"{dm}/dev": "253:0\n", f"{dm}/queue/rotational": "0\n", f"{dm}/queue/read_ahead_kb": "4096\n"}
    roots = machine("27 1 253:0 / / rw - xfs /dev/mapper/vg-data rw\n", files, BARE)
    slaves = tmp_path / dm / "slaves"
    slaves.mkdir()
    (slaves / "nvme0n1p2").symlink_to(tmp_path / "sys/devices/pci0000:00/nvme/nvme0/nvme0n1/nvme0n1p2")
    found = device_under("/data", roots)
    assert (found.name, found.disks, found.read_ahead_kb, found.virtual) == ("dm-0", ("nvme0n1",), 4096, False)


@pytest.mark.parametrize(
    ("folder", "model", "cpuinfo", "word"),
    [
        ("pci0000:00/virtio1/block/vda", "", BARE, "driver"),
        ("vbd-768/block/xvda", "", BARE, "driver"),
        ("pci0000:00/virtio3/host2/target2:0:1/block/sdb", "", BARE, "driver"),
        ("pci0000:00/ata1/block/sda", "VMware Virtual S", BARE, "model"),
        ("pci0000:00/nvme/nvme1/nvme1n1", "Amazon Elastic Block Store", BARE, "model"),
        ("pci0000:00/nvme/nvme1/nvme1n1", "Some SSD", GUEST, "hypervisor"),
    ],
)
def test_a_virtual_disk_is_known_by_driver_model_or_hypervisor(machine: Machine, folder: str, model: str, cpuinfo: str, word: str) -> None:
    files = {
        f"sys/devices/{folder}/dev": "254:0\n",
        f"sys/devices/{folder}/device/model": model,
        f"sys/devices/{folder}/queue/rotational": "1\n",
    }
    found = device_under("/data", machine("27 1 254:0 / / rw - ext4 /dev/root rw\n", files, cpuinfo))
    assert found.virtual is True
    assert word in found.virtual_reason
    assert (found.rotational, found.read_ahead_kb) == (True, None)


def test_an_overlay_is_on_the_device_of_its_upper_folder(machine: Machine, tmp_path: Path) -> None:
    upper = tmp_path / "layers" / "upper"
    upper.mkdir(parents=True)
    overlay = f"40 1 0:50 / /app rw - overlay overlay rw,lowerdir=/none/a:/none/b,upperdir={upper},workdir=/none/w\n"
    assert device_number("/app/data", machine(ROOT + overlay, nvme(), BARE)) == "259:2"


def test_an_overlay_in_a_container_cannot_be_followed(machine: Machine) -> None:
    overlay = "40 1 0:50 / / rw - overlay overlay rw,lowerdir=/none/a:/none/b,upperdir=/none/u,workdir=/none/w\n"
    with pytest.raises(Unknown, match="mount the data as a volume"):
        device_number("/data", machine(overlay, nvme(), BARE))


def test_an_overlay_on_itself_ends(machine: Machine, tmp_path: Path) -> None:
    overlay = f"40 1 0:50 / / rw - overlay overlay rw,upperdir={tmp_path}\n"
    with pytest.raises(Unknown, match="on top of each other"):
        device_number("/data", machine(overlay, {}, BARE))


def test_btrfs_is_on_the_device_it_was_mounted_from(machine: Machine) -> None:
    btrfs = "27 1 0:25 /@ / rw,relatime - btrfs /dev/nvme0n1p2 rw,subvol=/@\n"
    assert device_number("/data", machine(btrfs, nvme(), BARE)) == "259:2"


@pytest.mark.parametrize(
    ("fs", "source", "word"),
    [
        ("nfs4", "server:/export", "no block device on this machine"),
        ("fuse.sshfs", "me@there:", "no block device on this machine"),
        ("tmpfs", "tmpfs", "is memory"),
        ("zfs", "pool/data", "does not name a block device"),
        ("btrfs", "/dev/gone", "is not there"),
    ],
)
def test_what_has_no_block_device_says_what_it_is(machine: Machine, fs: str, source: str, word: str) -> None:
    with pytest.raises(Unknown, match=word):
        device_number("/data", machine(f"27 1 0:25 / / rw - {fs} {source} rw\n", nvme(), BARE))


def test_a_device_that_sysfs_does_not_show(machine: Machine) -> None:
    with pytest.raises(Unknown, match="8:1 is not in"):
        describe("8:1", machine(ROOT, {}, BARE))


def test_mounts_with_blanks_optional_fields_and_one_on_top_of_another() -> None:
    mounts = parse_mountinfo(
        "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 27 8:2 / /my\\040data rw,noatime shared:7 master:1 - xfs /dev/sda2 rw,attr2\n"
        "31 27 8:3 / /my\\040data rw - xfs /dev/sda3 rw\n"
        "32 27 8:4 /sub /mydata rw - ext4 /dev/sda4 rw,data=ordered\n"
    )
    assert mount_of("/my data/x", mounts).device == "8:3", "of two on one folder the later is seen"
    assert mount_of("/mydatabase", mounts).device == "8:1", "a name that begins alike is no folder inside"
    assert mount_of("/mydata", mounts).option("data") == "ordered"
    assert mount_of("/mydata", mounts).option("rw") == ""
    assert mounts[1].options == "rw,noatime,rw,attr2"
    with pytest.raises(Unknown, match="no mount holds"):
        mount_of("/x", mounts[1:])
    with pytest.raises(Unknown, match="not as expected"):
        parse_mountinfo("27 1 8:1 / /\n")


def test_this_machine() -> None:
    """``df`` is the oracle for the file system's type."""
    told = subprocess.run(["df", "--output=fstype", __file__], capture_output=True, text=True, check=True).stdout.split()[-1]
    assert mount_under(__file__, Roots()).fs == told
