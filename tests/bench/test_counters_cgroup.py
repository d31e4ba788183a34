"""Limits of control groups are found in either version, however a container shows them: stops "8 CPUs" where a quota pays for two.

Trees are as machines show them; only their root is moved.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shardtools.bench.counters import cgroup
from shardtools.bench.counters.cgroup import Group, MemoryLimit, Quota, Throttling
from shardtools.bench.counters.device import Roots
from shardtools.bench.environment import usable_memory_bytes
from shardtools.bench.not_measured import Unknown

Machine = Callable[[Mapping[str, str]], Roots]
V1_MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 {root} @/cg/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 {root} @/cg/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 {root} @/cg/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / @/cg/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNTS = "29 23 0:26 {root} @/cg rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
V1_STAT = "nr_periods 500\nnr_throttled 300\nthrottled_time 2500000000\n"
V2_STAT = "usage_usec 900\nuser_usec 800\nsystem_usec 100\nnr_periods 40\nnr_throttled 10\nthrottled_usec 1500000\nnr_bursts 0\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Files by path; @ stands for the folder they are under."""

    def make(files: Mapping[str, str]) -> Roots:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("@", str(tmp_path)))
        return Roots(str(tmp_path / "proc"), str(tmp_path / "sys"))

    return make


def v1(files: Mapping[str, str], path: str = "/", root: str = "/") -> dict[str, str]:
    groups = f"9:name=systemd:/\n4:memory:{path}\n3:cpuset:/\n1:cpu,cpuacct:{path}\n0::/\n"
    return {"proc/self/mountinfo": V1_MOUNTS.format(root=root), "proc/self/cgroup": groups, "cg/unified/cgroup.procs": "", **files}


def v2(files: Mapping[str, str], path: str = "/", root: str = "/") -> dict[str, str]:
    mounts = V2_MOUNTS.format(root=root)
    return {
        "proc/self/mountinfo": mounts,
        "proc/self/cgroup": f"0::{path}\n",
        "cg/cgroup.controllers": "cpuset cpu io memory pids\n",
        **files,
    }


def cpu(roots: Roots) -> Group:
    return cgroup.group_of("cpu", roots)


def test_version_1_with_a_quota(machine: Machine, tmp_path: Path) -> None:
    job = "cg/cpu,cpuacct/job"
    roots = machine(v1({f"{job}/cpu.cfs_quota_us": "150000\n", f"{job}/cpu.cfs_period_us": "100000\n", f"{job}/cpu.stat": V1_STAT}, "/job"))
    group = cpu(roots)
    assert group == Group(1, (str(tmp_path / job), str(tmp_path / "cg/cpu,cpuacct")))
    assert (quota := cgroup.quota_of(group)) == Quota(1.5, str(tmp_path / job))
    assert cgroup.throttling_of(quota) == Throttling(500, 300, 2.5)
    assert cgroup.cpus_effective(8, quota) == 2


def test_version_2_with_a_quota(machine: Machine, tmp_path: Path) -> None:
    roots = machine(v2({"cg/a/b/cpu.max": "50000 100000\n", "cg/a/b/cpu.stat": V2_STAT, "cg/a/cpu.max": "max 100000\n"}, "/a/b"))
    quota = cgroup.quota_of(cpu(roots))
    assert cpu(roots).version == 2
    assert quota == Quota(0.5, str(tmp_path / "cg/a/b"))
    assert cgroup.throttling_of(quota) == Throttling(40, 10, 1.5)
    assert cgroup.cpus_effective(8, quota) == 1


def test_the_tightest_group_above_binds_and_its_throttling_is_counted(machine: Machine, tmp_path: Path) -> None:
    files = {
        "cg/a/cpu.max": "200000 100000\n",
        "cg/a/cpu.stat": V2_STAT,
        "cg/a/b/cpu.max": "400000 100000\n",
        "cg/a/b/cpu.stat": "nr_periods 1\n",
    }
    quota = cgroup.quota_of(cpu(machine(v2(files, "/a/b"))))
    assert quota == Quota(2.0, str(tmp_path / "cg/a"))
    assert cgroup.throttling_of(quota).num_throttled == 10


def test_no_quota_is_no_throttling(machine: Machine) -> None:
    roots = machine(v1({"cg/cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cg/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}))
    assert cgroup.quota_of(cpu(roots)) is None
    assert cgroup.throttling_of(None) == Throttling(0, 0, 0.0)
    assert cgroup.cpus_effective(8, None) == 8


def test_the_root_of_version_2_has_no_limit_files(machine: Machine) -> None:
    assert cgroup.quota_of(cpu(machine(v2({})))) is None


def test_a_container_whose_groups_are_named_from_the_host(machine: Machine, tmp_path: Path) -> None:
    """Without a namespace for groups the path begins at the host's root, the mount with the container's."""
    files = {"cg/cpu,cpuacct/cpu.cfs_quota_us": "400000\n", "cg/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}
    group = cpu(machine(v1(files, "/docker/ab12", "/docker/ab12")))
    assert group.folders == (str(tmp_path / "cg/cpu,cpuacct"),)
    assert cgroup.quota_of(group) == Quota(4.0, group.folders[0])
    inner = {f"cg/cpu,cpuacct/job/cpu.cfs_{name}_us": text for name, text in (("quota", "200000\n"), ("period", "100000\n"))}
    group = cpu(machine(v1(inner, "/docker/ab12/job", "/docker/ab12")))
    assert cgroup.quota_of(group) == Quota(2.0, str(tmp_path / "cg/cpu,cpuacct/job"))


def test_a_path_outside_of_what_is_mounted_falls_back_to_the_mount(machine: Machine, tmp_path: Path) -> None:
    roots = machine(v2({"cg/cpu.max": "300000 100000\n"}, "/../../other", "/docker/ab12"))
    assert cpu(roots).folders == (str(tmp_path / "cg"),)
    assert cgroup.quota_of(cpu(roots)) == Quota(3.0, str(tmp_path / "cg"))


def test_version_2_beside_version_1_is_not_taken_for_its_controllers(machine: Machine) -> None:
    mounts = "41 31 0:38 / @/cg/unified rw,relatime - cgroup2 cgroup2 rw\n"
    roots = machine({"proc/self/mountinfo": mounts, "proc/self/cgroup": "0::/\n", "cg/unified/cgroup.controllers": "\n"})
    with pytest.raises(Unknown, match="no control group of cpu is mounted here"):
        cpu(roots)


def test_memory_that_could_be_dropped_is_not_in_use(machine: Machine) -> None:
    files = {"cg/m/memory.max": "1000000\n", "cg/m/memory.current": "900000\n", "cg/m/memory.stat": "anon 100\ninactive_file 600000\n"}
    group = cgroup.group_of("memory", machine(v2(files, "/m")))
    assert cgroup.memory_limit_of(group) == MemoryLimit(1000000, 300000)


def test_what_is_written_for_no_limit_is_none(machine: Machine) -> None:
    texts = {"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "5\n", "memory.stat": ""}
    roots = machine(v1({f"cg/memory/{name}": text for name, text in texts.items()}))
    assert cgroup.memory_limit_of(cgroup.group_of("memory", roots)) is None
    files = {"cg/m/memory.max": "max\n", "cg/m/memory.current": "5\n", "cg/m/memory.stat": ""}
    assert cgroup.memory_limit_of(cgroup.group_of("memory", machine(v2(files, "/m")))) is None


def test_memory_of_version_1(machine: Machine) -> None:
    inner = {"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "5\n", "memory.stat": "total_inactive_file 0\n"}
    outer = {
        "memory.limit_in_bytes": "8000\n",
        "memory.usage_in_bytes": "5000\n",
        "memory.stat": "inactive_file 9\ntotal_inactive_file 1000\n",
    }
    files = {f"cg/memory/a/b/{name}": text for name, text in inner.items()} | {f"cg/memory/a/{name}": text for name, text in outer.items()}
    group = cgroup.group_of("memory", machine(v1(files, "/a/b")))
    assert cgroup.memory_limit_of(group) == MemoryLimit(8000, 4000), "what is written for no limit is no limit, that of the group around is"


def test_usable_memory_is_the_machines_or_the_groups(machine: Machine) -> None:
    group = {"cg/m/memory.max": "1000000\n", "cg/m/memory.current": "900000\n", "cg/m/memory.stat": "inactive_file 0\n"}
    assert usable_memory_bytes(machine(v2(group | {"proc/meminfo": "MemAvailable: 5000 kB\n"}, "/m"))) == 100000
    assert usable_memory_bytes(machine({"proc/meminfo": "MemAvailable: 50 kB\n"})) == 50 * 1024
    assert usable_memory_bytes(machine({"proc/meminfo": "MemAvailable: 5000 kB\n", "proc/self/cgroup": "0::/\n"})) == 5000 * 1024


@pytest.mark.parametrize("text", ["", "nr_periods x\nnr_throttled 1\nthrottled_usec 1", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n"])
def test_a_group_that_does_not_count_throttling_says_so(text: str) -> None:
    with pytest.raises(Unknown, match="does not count throttling"):
        cgroup.parse_throttling(text)


def test_texts_of_limits_that_are_no_limits() -> None:
    assert cgroup.parse_cpu_max("max 100000\n") is None
    assert cgroup.parse_cfs("-1\n", "100000\n") is None
    for parse in (lambda: cgroup.parse_cpu_max("12\n"), lambda: cgroup.parse_cpu_max("a b"), lambda: cgroup.parse_cfs("5", "0")):
        with pytest.raises(Unknown):
            parse()
    with pytest.raises(Unknown):
        cgroup.parse_cgroups("gibberish\n")
