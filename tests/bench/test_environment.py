"""The ledger has every part, each None with its reason, and loads nothing heavy: stops a report nobody can place."""

import json
import multiprocessing
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardtools.bench import versions
from shardtools.bench.counters.affinity import allowed_cpus
from shardtools.bench.counters.cpu import governor, num_thermal_events
from shardtools.bench.counters.device import Roots
from shardtools.bench.environment import default_start_method, ledger
from shardtools.bench.not_measured import Reasons, Unknown

PARTS = {
    "system", "kernel", "machine", "cpu", "governor", "cpus", "cpus_effective", "affinity", "cgroup", "mem", "shm", "rlimit_nofile",
    "storage", "gpu", "start_method", "python", "torch", "torchvision", "webdataset", "streaming", "numpy", "tokenizers", "pillow",
    "not_measured",
}  # fmt: skip


def nones(found: dict[str, Any]) -> set[str]:
    """Of the parts and of those of ``mem``, as reasons name them."""
    inner = {f"mem.{name}": value for name, value in found["mem"].items()}
    return {name for name, value in (found | inner).items() if value is None}


def test_this_machine_is_told(tmp_path: Path) -> None:
    found = ledger([str(tmp_path)])
    assert found.keys() == PARTS
    assert json.loads(json.dumps(found)) == found
    assert found["cpus"] == os.cpu_count()
    assert 1 <= found["cpus_effective"] <= len(os.sched_getaffinity(0))
    assert found["affinity"] == sorted(os.sched_getaffinity(0))
    assert found["rlimit_nofile"]["soft"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found["kernel"] == os.uname().release
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    told = subprocess.run(["df", "--output=fstype", str(tmp_path)], capture_output=True, text=True, check=True).stdout.split()[-1]
    assert found["storage"][0]["fs"]["type"] == told
    assert found["shm"]["size_bytes"] == os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize


def test_every_none_has_a_reason(tmp_path: Path) -> None:
    for roots in (None, Roots(str(tmp_path / "proc"), str(tmp_path / "sys"))):
        found = ledger([str(tmp_path), "s3://bucket/x"], roots=roots)
        reasons = {entry["metric"]: entry["reason"] for entry in found["not_measured"]}
        assert nones(found) <= reasons.keys()
        assert all(reasons.values())
        for part in found["storage"]:
            for name in ("fs", "device"):
                assert (part[name] is None) == (f"storage.{name} of {part['uri']}" in reasons)


def test_data_elsewhere_has_no_file_system() -> None:
    assert ledger(["s3://bucket/x"])["storage"] == [{"uri": "s3://bucket/x", "fs": None, "device": None}]


def test_mount_options_tell_of_speed_not_of_people(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    options = "rw,relatime - cifs //server/x rw,vers=3.1,username=ann,addr=10.0.0.1,rsize=1048576"
    (tmp_path / "self" / "mountinfo").write_text(f"27 1 0:5 / / {options}\n")
    found = ledger([str(tmp_path)], roots=Roots(str(tmp_path), str(tmp_path / "sys")))
    assert found["storage"][0]["fs"]["options"] == "rw,relatime,vers=3.1,rsize=1048576"


def test_a_quota_lowers_the_processors(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc" / "self", tmp_path / "cg"
    proc.mkdir(parents=True)
    group.mkdir()
    (proc / "mountinfo").write_text(f"29 23 0:26 / {group} rw - cgroup2 cgroup2 rw\n")
    (proc / "cgroup").write_text("0::/\n")
    (group / "cgroup.controllers").write_text("cpu memory\n")
    (group / "cpu.max").write_text("70000 100000\n")
    found = ledger([], roots=Roots(str(tmp_path / "proc"), str(tmp_path / "sys")))
    assert found["cpus_effective"] == 1
    assert found["cgroup"] == {"version": 2, "path": str(group), "quota_cpus": 0.7}


def test_the_start_method_is_told_without_being_settled() -> None:
    code = (
        "import multiprocessing as m; from shardtools.bench.environment import default_start_method as d, ledger\n"
        "first = d(); assert ledger([])['start_method'] == first\n"
        "assert m.get_start_method(allow_none=True) is None; print(first, m.get_start_method())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert told[0] == told[1]
    assert default_start_method() in multiprocessing.get_all_start_methods()
    assert ledger([], "spawn")["start_method"] == "spawn"


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, shardtools.bench.page_cache.state, shardtools.bench.counters.sampler\n"
        "from shardtools.bench.environment import ledger\n"
        "ledger(['/']); print(sorted({'torch', 'streaming', 'webdataset', 'psutil', 'click'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def fake_pillow(monkeypatch: pytest.MonkeyPatch, version: str, turbo: str | None) -> None:
    features = SimpleNamespace(
        check_feature=lambda name: name == "libjpeg_turbo" and turbo is not None,
        version_feature=lambda name: turbo if name == "libjpeg_turbo" else None,
        version_codec=lambda name: "9.0" if name == "jpg" else None,
    )
    monkeypatch.setitem(sys.modules, "PIL", SimpleNamespace(__version__=version, features=features))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "turbo", "package", "libjpeg"),
    [
        ("11.0.0", "3.0.4", "pillow", "libjpeg-turbo 3.0.4"),
        ("9.5.0.post2", "2.1.5", "pillow-simd", "libjpeg-turbo 2.1.5"),
        ("9.5.0.post2", None, "pillow-simd", "libjpeg 9.0"),
    ],
)
def test_which_pillow_decodes_with_what(
    monkeypatch: pytest.MonkeyPatch, version: str, turbo: str | None, package: str, libjpeg: str
) -> None:
    fake_pillow(monkeypatch, version, turbo)
    assert versions.pillow() == {"package": package, "version": version, "libjpeg": libjpeg}


def test_no_pillow_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    reasons = Reasons()
    assert versions.installed(reasons)["pillow"] is None
    assert reasons.of("pillow") == "pillow is not installed"


def test_what_is_not_installed_has_a_reason() -> None:
    with pytest.raises(Unknown, match="no-such-thing is not installed"):
        versions.version_of("no-such-thing")


def test_clocks(tmp_path: Path) -> None:
    roots = Roots(str(tmp_path), str(tmp_path))
    for ask in (governor, num_thermal_events):
        with pytest.raises(Unknown):
            ask(roots)
    for number, (name, count) in enumerate([("performance", 3), ("powersave", 4)]):
        cpu = tmp_path / f"devices/system/cpu/cpu{number}"
        (cpu / "cpufreq").mkdir(parents=True)
        (cpu / "thermal_throttle").mkdir()
        (cpu / "cpufreq" / "scaling_governor").write_text(f"{name}\n")
        (cpu / "thermal_throttle" / "core_throttle_count").write_text(f"{count}\n")
    assert governor(roots) == "performance, powersave"
    assert num_thermal_events(roots) == 7


def test_processors_of_this_process() -> None:
    assert set(allowed_cpus()) == os.sched_getaffinity(0)
    assert allowed_cpus(2**22 + 5) == ()
