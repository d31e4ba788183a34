"""Each limit that stops loader workers is found on a machine that has it, and not on one that has not.

Stops a doctor that calls a sick machine well, alarms on a sound one, or names no remedy. Machines are values, or recorded texts of the
kernel under another root.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_machines import GIB, IN_DOCKER, SOUND, TEMP

from shardtools.bench.counters.cgroup import MemoryLimit
from shardtools.bench.counters.device import Roots
from shardtools.bench.counters.host import SharedMemory
from shardtools.bench.doctor.data_findings import data_findings
from shardtools.bench.doctor.finding import Finding, worst_first
from shardtools.bench.doctor.machine import this_machine
from shardtools.bench.doctor.machine_findings import crowding, machine_findings
from shardtools.bench.doctor.package_findings import package_findings
from shardtools.bench.doctor.request import DoctorRequest
from shardtools.bench.doctor.storage_findings import storage_findings
from shardtools.bench.not_measured import Reasons

SICK = {
    "no shm": (replace(IN_DOCKER, shm=None), "fault", "shm", "docker run --shm-size=2g"),
    "docker's shm": (replace(IN_DOCKER, shm=SharedMemory(64 * 2**20, 64 * 2**20)), "warning", "shm", "64.0 MiB"),
    "small shm of a host": (replace(SOUND, shm=SharedMemory(2**24, 2**24)), "warning", "shm", "sudo mount -o remount,size=2g /dev/shm"),
    "full shm": (replace(SOUND, shm=SharedMemory(16 * GIB, 4 * GIB)), "warning", "shm", "75 % full (12.0 GiB of 16.0 GiB)"),
    "shm above the group's memory": (replace(SOUND, memory_limit=MemoryLimit(8 * GIB, 0)), "note", "shm", "8.0 GiB"),
    "few descriptors": (replace(SOUND, descriptors=(256, 4096)), "warning", "fds", "`ulimit -n 1024`"),
    "few descriptors for good": (replace(IN_DOCKER, descriptors=(64, 64)), "warning", "fds", "docker run --ulimit nofile=1024:1024"),
    "few descriptors of a host": (replace(SOUND, descriptors=(64, 64)), "warning", "fds", "/etc/security/limits.conf"),
    "quota": (replace(SOUND, quota_cpus=1.5), "note", "cpu", "pays for 1.5 of 8 processors"),
    "affinity": (replace(SOUND, num_allowed_cpus=4), "note", "cpu", "taskset -c 0-7"),
    "one core": (replace(SOUND, num_allowed_cpus=1), "warning", "cpu", "1 of 8 processors"),
    "held back": (replace(SOUND, throttled_share=0.6), "warning", "cpu", "60 % of its periods"),
    "powersave": (replace(SOUND, governor="powersave"), "note", "cpu", "cpupower frequency-set -g performance"),
    "little memory": (replace(SOUND, memory_limit=MemoryLimit(32 * GIB, 30 * GIB)), "warning", "memory", "2.0 GiB of its 32.0 GiB left"),
    "address space": (replace(SOUND, ulimits={"-v": (4 * GIB, None)}), "warning", "ulimit", "`ulimit -v unlimited`"),
    "few processes": (replace(SOUND, most_processes=100), "warning", "ulimit", "At most 100 processes"),
    "forkserver": (replace(SOUND, start_method="forkserver", python=(3, 14)), "note", "start method", "since Python 3.14"),
    "long temp": (replace(SOUND, temp=replace(TEMP, path="/" + "x" * 80)), "fault", "temp", "TMPDIR=/tmp"),
    "temp on a network": (replace(SOUND, temp=replace(TEMP, fs="nfs4", is_network=True)), "warning", "temp", "nfs4"),
    "temp full": (replace(SOUND, temp=replace(TEMP, free_bytes=2**20)), "warning", "temp", "1.0 MiB left"),
    "temp in memory": (replace(SOUND, temp=replace(TEMP, fs="tmpfs", is_memory=True)), "note", "temp", "tmpfs"),
    "ASCII": (replace(SOUND, encoding="ascii"), "warning", "locale", "export LC_ALL=C.UTF-8"),
}


def test_a_sound_machine_has_nothing_but_how_workers_start() -> None:
    (only,) = machine_findings(SOUND)
    assert (only.level, only.topic) == ("note", "start method")
    assert "from Python 3.14 on by forkserver" in only.sentence


@pytest.mark.parametrize("name", SICK)
def test_each_limit_is_found_with_its_remedy(name: str) -> None:
    machine, level, topic, words = SICK[name]
    found = [finding for finding in machine_findings(machine) if finding.topic == topic]
    assert [(finding.level, words in finding.sentence) for finding in found] == [(level, True)], found


def test_every_finding_is_one_sentence() -> None:
    for machine, *_ in SICK.values():
        for finding in machine_findings(machine):
            assert finding.sentence.endswith(".") and "  " not in finding.sentence and "\n" not in finding.sentence


def test_the_worst_come_first_and_keep_their_order() -> None:
    mixed = [Finding("ok", "a", "1."), Finding("warning", "b", "2."), Finding("fault", "c", "3."), Finding("warning", "d", "4.")]
    assert [finding.topic for finding in worst_first(mixed)] == ["c", "b", "d", "a"]


def test_notes_come_after_the_answer() -> None:
    mixed = [Finding("note", "a", "1."), Finding("ok", "b", "2.")]
    assert [finding.topic for finding in worst_first(mixed)] == ["b", "a"]


def test_what_the_table_has_told_is_not_told_again() -> None:
    small = replace(SOUND, shm=SharedMemory(64 * 2**20, 64 * 2**20), descriptors=(256, 4096))
    assert {finding.topic for finding in machine_findings(small)} >= {"shm", "fds"}
    assert not {finding.topic for finding in machine_findings(small, {"shm", "fds"})} & {"shm", "fds"}


@pytest.mark.parametrize(
    ("num_workers", "num_ranks", "words"),
    [
        ((1, 2, 4, 8), 1, None),
        ((32,), 1, None),
        ((33,), 1, "33 workers share 8 usable processors"),
        ((8,), 5, "5 ranks of 8 workers share"),
    ],
)
def test_workers_far_above_the_processors_are_told(num_workers: tuple[int, ...], num_ranks: int, words: str | None) -> None:
    found = list(crowding(SOUND, DoctorRequest(num_workers=num_workers, num_ranks=num_ranks)))
    assert [finding.level for finding in found] == ([] if words is None else ["warning"])
    assert words is None or words in found[0].sentence


# Control groups, as kernels of both versions write them.

V2 = {
    "cgroup.controllers": "cpu memory pids\n",
    "cpu.max": "70000 100000\n",
    "cpu.stat": "usage_usec 1\nnr_periods 100\nnr_throttled 40\nthrottled_usec 5\n",
    "memory.max": "1073741824\n",
    "memory.current": "1000000000\n",
    "memory.stat": "inactive_file 100000000\n",
    "pids.max": "200\n",
}
V1 = {
    "cpu.cfs_quota_us": "70000\n",
    "cpu.cfs_period_us": "100000\n",
    "cpu.stat": "nr_periods 100\nnr_throttled 40\nthrottled_time 5\n",
    "memory.limit_in_bytes": "1073741824\n",
    "memory.usage_in_bytes": "1000000000\n",
    "memory.stat": "total_inactive_file 100000000\n",
    "pids.max": "200\n",
}


@pytest.mark.parametrize("version", [1, 2])
def test_the_limits_of_a_control_group_are_found(tmp_path: Path, version: int) -> None:
    proc, group = tmp_path / "proc" / "self", tmp_path / "cg"
    proc.mkdir(parents=True)
    group.mkdir()
    for name, text in (V2 if version == 2 else V1).items():
        (group / name).write_text(text)
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,cpu,memory,pids"
    (proc / "mountinfo").write_text(f"27 1 8:1 / / rw - ext4 /dev/sda1 rw\n29 23 0:26 / {group} rw - {kind}\n")
    (proc / "cgroup").write_text("0::/\n" if version == 2 else "3:cpu,memory,pids:/\n")
    machine = this_machine(Roots(str(tmp_path / "proc"), str(tmp_path / "sys")), Reasons())
    assert (machine.cgroup_version, machine.quota_cpus, machine.throttled_share, machine.most_processes) == (version, 0.7, 0.4, 200)
    assert machine.memory_limit == MemoryLimit(1073741824, 900000000)
    assert machine.cpus_effective == 1
    assert {"cpu", "memory", "ulimit"} <= {finding.topic for finding in machine_findings(machine)}


def test_a_machine_that_tells_nothing_has_reasons(tmp_path: Path) -> None:
    reasons = Reasons()
    machine = this_machine(Roots(str(tmp_path / "proc"), str(tmp_path / "sys")), reasons)
    assert machine.governor is None and machine.cgroup_version is None and machine.temp.fs is None
    assert {"governor", "cgroup", "temp.fs"} <= {missing.metric for missing in reasons.listed()}
    list(machine_findings(machine))


# Storage.

DISK: dict[str, Any] = {"name": "sda1", "disks": ["sda"], "rotational": False, "read_ahead_kb": 256, "virtual": False, "virtual_reason": ""}


def storage(fs: str | None, **device: Any) -> list[tuple[str, str]]:
    entry = {"uri": "data", "fs": None if fs is None else {"type": fs}, "device": {**DISK, **device} if device or fs == "ext4" else None}
    reasons = {"storage.fs of data": "the data is not on this machine", "storage.device of data": "overlay on folders"}
    return [(finding.level, finding.sentence) for finding in storage_findings(entry, reasons)]


def test_a_good_disk_needs_no_word() -> None:
    assert storage("ext4") == []


@pytest.mark.parametrize(
    ("fs", "device", "level", "words"),
    [
        ("ext4", {"rotational": True}, "warning", "rotating disk (sda1)"),
        ("ext4", {"virtual": True, "rotational": True, "virtual_reason": "vda is virtual"}, "note", "virtual disk (vda is virtual)"),
        ("ext4", {"read_ahead_kb": 16}, "note", "sudo blockdev --setra 512 /dev/sda"),
        ("ext4", {"read_ahead_kb": 8192}, "note", "reads 8,192 kB ahead"),
        ("nfs4", {}, "warning", "nfs4"),
        ("fuse.gcsfuse", {}, "warning", "fuse.gcsfuse"),
        ("tmpfs", {}, "note", "lies in memory (tmpfs)"),
        ("overlay", {}, "note", "overlay on folders"),
        (None, {}, "note", "the data is not on this machine"),
    ],
)
def test_each_kind_of_storage_is_told(fs: str | None, device: dict[str, Any], level: str, words: str) -> None:
    ((found, sentence),) = storage(fs, **device)
    assert (found, words in sentence) == (level, True), sentence


# Libraries and data.

PILLOW = {"package": "pillow", "version": "11.0", "libjpeg": "libjpeg-turbo 3.0"}
TORCH = {
    "version": "2.13.0+cu130", "cuda_build": "13.0", "is_cuda_available": True, "cuda_reason": None, "sharing": "file_descriptor",
    "num_threads": 2, "import_s": 1.0,
}  # fmt: skip
GPU = [{"name": "H200", "driver": "570.1"}]


def libraries(process: dict[str, Any] | None, /, **environment: Any) -> list[tuple[str, str]]:
    told = {"gpu": GPU, "torch": "2.13.0", "pillow": PILLOW, **environment}
    return [(finding.level, finding.sentence) for finding in package_findings(told, process, "it ended with signal 4")]


def test_good_libraries_need_no_word() -> None:
    assert libraries(TORCH) == []


@pytest.mark.parametrize(
    ("torch", "environment", "level", "words"),
    [
        (None, {"torch": None}, "note", "torch is not installed"),
        (None, {}, "fault", "ended with signal 4"),
        ({**TORCH, "cuda_build": None, "is_cuda_available": False}, {}, "fault", "built without CUDA, and H200 is here"),
        ({**TORCH, "is_cuda_available": False, "cuda_reason": "too old"}, {}, "fault", "too old; update driver 570.1"),
        ({**TORCH, "is_cuda_available": False}, {"gpu": []}, "note", "docker run --gpus all"),
        ({**TORCH, "sharing": "file_system"}, {}, "note", "file_system"),
        ({**TORCH, "import_s": 22.0}, {}, "note", "22.0 s"),
        (TORCH, {"pillow": None}, "warning", "pip install pillow"),
        (TORCH, {"pillow": {**PILLOW, "libjpeg": "libjpeg 6b"}}, "warning", "libjpeg 6b"),
    ],
)
def test_each_fault_of_libraries_is_told(torch: dict[str, Any] | None, environment: dict[str, Any], level: str, words: str) -> None:
    ((found, sentence),) = libraries(torch, **environment)
    assert (found, words in sentence) == (level, True), sentence


def test_fewer_shards_than_workers_are_told() -> None:
    side = {"uri": "shards", "num_shards": 6, "batches": [[4096]], "error": None}
    asked = DoctorRequest(("shards",), num_workers=(2, 4), num_ranks=2)
    (found,) = data_findings([side], asked)
    assert found.level == "warning" and "6 shards for 8 workers" in found.sentence and "num_workers=3" in found.sentence
    assert list(data_findings([{**side, "num_shards": 8}], asked)) == []
    (unread,) = data_findings([{**side, "num_shards": None, "batches": [], "error": "no image"}], asked)
    assert unread.sentence == "No batch of shards could be measured, so sizes are assumed: no image."
