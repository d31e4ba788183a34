"""What the doctor shows of disks, processes and memory is what iostat, pidstat, ipcs and df show; stops columns of a known name that
mean something else.

Recorded texts have their numbers worked out by hand. The real tools run beside it where they are installed (sysstat, util-linux).
"""

import mmap
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from shardtools.bench.counters.device import Roots, device_under
from shardtools.bench.counters.disk import DiskCounts, OtherCounts, device_names
from shardtools.bench.counters.gpu import GpuUse
from shardtools.bench.counters.process import parse_private, parse_use, parse_waited
from shardtools.bench.counters.segments import parse_segments
from shardtools.bench.doctor.live import columns
from shardtools.bench.doctor.live.at_hand import AtHand
from shardtools.bench.doctor.live.disks import DiskCounters, disk_use, read_disks
from shardtools.bench.doctor.live.look import Now, Scope, Watch
from shardtools.bench.doctor.live.tasks import TaskCounters, task_use
from shardtools.bench.not_measured import Reasons, Unknown

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the counters are Linux's")
PLAIN = {**os.environ, "LC_ALL": "C", "S_COLORS": "never", "S_TIME_FORMAT": "ISO"}


def tool(name: str, *arguments: str) -> str:
    """What a tool of the system prints."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: apt-get install sysstat util-linux")
    return subprocess.run([name, *arguments], env=PLAIN, capture_output=True, text=True, check=True, timeout=60).stdout


# Recorded texts.

EARLIER = " 8 0 sda 1000 10 16000 5000 200 40 8000 900 0 4000 7000 0 0 0 0 0 0\n 8 1 sda1 1 0 8 1 0 0 0 0 0 1 1\n"
LATER = " 8 0 sda 1400 110 20000 6000 300 60 8800 1400 0 5500 9000 0 0 0 0 0 0\n 8 1 sda1 1 0 8 1 0 0 0 0 0 1 1\n"


def counters(text: str, roots: Roots) -> DiskCounters:
    return read_disks(text, ("sda",), roots)["sda"]


def test_a_disk_between_two_looks(tmp_path: Path) -> None:
    roots = Roots(str(tmp_path), str(tmp_path))
    assert counters(EARLIER, roots) == DiskCounters(DiskCounts(1000, 16000, 5000, 4000, 7000), OtherCounts(10, 200, 40, 8000, 900))
    assert disk_use("sda", counters(EARLIER, roots), counters(LATER, roots), 2.0).as_json() == {
        "device": "sda",
        "r/s": 200,
        "rkB/s": 1000,
        "%rrqm": 20,
        "r_await": 2.5,
        "rareq-sz": 5,
        "w/s": 50,
        "wkB/s": 200,
        "w_await": 5,
        "aqu-sz": 1,
        "%util": 75,
    }
    with pytest.raises(Unknown, match="backwards"):
        disk_use("sda", counters(LATER, roots), counters(EARLIER, roots), 2.0)


def test_partitions_are_not_listed_beside_their_disk(tmp_path: Path) -> None:
    (tmp_path / "class/block/sda1").mkdir(parents=True)
    (tmp_path / "class/block/sda1/partition").write_text("1\n")
    assert device_names(EARLIER) == ["sda", "sda1"]
    assert list(read_disks(EARLIER, None, Roots(sys=str(tmp_path)))) == ["sda"]
    assert list(read_disks(EARLIER, ("sda1",), Roots(sys=str(tmp_path)))) == ["sda1"]


STAT = (
    "42 (a b) c) S 1 42 42 0 -1 4194304 {minor} 77 {major} 5 {user} {system} 100 100 20 0 1 0 300 2048000 {rss} "
    "1 1 1 1 1 1 1 1 1 1 1 1 1 17 3 0 0 0 {guest} 0 0 0 0 0 0 0 0 0"
)


def task(minor: int, major: int, user: int, system: int, guest: int, waited_ns: int | None) -> TaskCounters:
    use = parse_use(STAT.format(minor=minor, major=major, user=user, system=system, rss=100, guest=guest))
    assert (use.command, use.start_ticks, use.last_cpu, use.virtual_bytes) == ("a b) c", 300, 3, 2048000)
    return TaskCounters(7, use, waited_ns)


def test_a_process_between_two_looks() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    page = os.sysconf("SC_PAGE_SIZE")
    before, after = task(10, 1, 0, 0, 0, 0), task(30, 2, ticks, ticks // 2, ticks // 2, 500_000_000)
    found = task_use(42, before, after, 2.0, 1000 * page).as_json()
    assert {name: found[name] for name in ("%usr", "%system", "%guest", "%wait", "%CPU")} == {
        "%usr": 25,
        "%system": 25,
        "%guest": 25,
        "%wait": 25,
        "%CPU": 75,
    }
    assert (found["minflt/s"], found["majflt/s"], found["VSZ"], found["RSS"], found["%MEM"]) == (10, 0.5, 2000, 100 * page // 1024, 10)
    assert task_use(42, before, task(30, 2, 1, 1, 0, None), 2.0, None).wait_pct is None


def test_of_many_workers_those_that_take_most_are_shown() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    tasks = [task_use(pid, task(0, 0, 0, 0, 0, 0), task(0, 0, pid * ticks // 100, 0, 0, 0), 1.0, None) for pid in range(1, 65)]
    now = Now(1.0, [], tasks, [], None, None, None, Reasons())
    shown = list(columns.lines(now))
    begin = shown.index("$ pidstat -u")
    assert [int(line.split()[1]) for line in shown[begin + 2 : begin + 12]] == list(range(55, 65))
    assert shown[begin + 12].startswith(f"    and 54 that take less: {sum(range(1, 55))} %CPU, ")
    assert len(shown) < 40 and all(len(line) <= 80 for line in shown)
    assert len(now.as_json()["pidstat"]) == 64


def test_small_texts() -> None:
    assert parse_waited("123 456 7\n") == 456
    assert parse_private("Rss: 100 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: 6 kB\n") == 10240
    for parse in (parse_waited, parse_private, parse_use):
        with pytest.raises(Unknown):
            parse("nothing")
    with pytest.raises(Unknown):
        parse_segments("key shmid\n1 2\n")


SEGMENTS = (
    "       key      shmid perms       size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime   rss  swap\n"
    "        -1          3  1600       4096    10    11      2     0     0     0     0          0          0          0  4096     0\n"
)


def test_a_segment_of_system_v() -> None:
    (found,) = parse_segments(SEGMENTS)
    assert (found.key, found.shmid, found.permissions, found.segment_bytes, found.num_attached) == (0xFFFFFFFF, 3, 0o600, 4096, 2)
    assert (found.is_ending, found.is_locked) == (True, False)


def test_a_gpu_in_the_columns_of_dmon() -> None:
    gpu = GpuUse(3, 412.4, 61.0, 98.0, 40.0, None, 0.0, 3201.0, 1980.0)
    now = Now(1.0, [], [], [], None, None, [gpu], Reasons())
    assert list(columns.lines(now))[-4:] == [
        "$ nvidia-smi dmon",
        "# gpu   pwr gtemp    sm   mem   enc   dec  mclk  pclk",
        "# Idx     W     C     %     %     %     %   MHz   MHz",
        "    3   412    61    98    40     -     0  3201  1980",
    ]


class FakeNvml(ModuleType):
    """One accelerator, which does not tell of its encoder."""

    class NVMLError(Exception):
        pass

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    answers: ClassVar = {
        "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": 0, "nvmlDeviceGetUUID": "GPU-0",
        "nvmlDeviceGetName": "H200", "nvmlSystemGetDriverVersion": "570.1", "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=8, used=4),
        "nvmlDeviceGetPowerUsage": 412400, "nvmlDeviceGetTemperature": 61, "nvmlDeviceGetDecoderUtilization": [5, 1000],
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=98, memory=40),
    }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlDeviceGetClockInfo":
            return lambda _, kind: {1: 1980, 2: 3201}[kind]
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *_: self._answer(name)

    def _answer(self, name: str) -> Any:
        if name not in self.answers:
            raise self.NVMLError("Not Supported")
        return self.answers[name]


def test_what_an_accelerator_does_is_asked_of_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("pynvml"))
    now = now_of(Scope((), "none", os.getpid()), 0.0)
    assert now.gpus == [GpuUse(0, 412.4, 61.0, 98.0, 40.0, None, 5.0, 3201.0, 1980.0)]
    assert now.reasons.of("0 encoder_pct") == "NVML does not tell"


def test_the_real_library_has_every_call() -> None:
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    for name in ("PowerUsage", "Temperature", "UtilizationRates", "EncoderUtilization", "DecoderUtilization", "ClockInfo"):
        assert callable(getattr(pynvml, f"nvmlDeviceGet{name}"))
    assert (pynvml.NVML_TEMPERATURE_GPU, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (0, 1, 2)


def test_a_reason_is_wrapped() -> None:
    reasons = Reasons()
    reasons.add("iostat", "overlay on folders that cannot be seen from here, as in a container: mount the data as a volume")
    first, second, *_ = columns.lines(Now(1.0, [], [], [], None, None, None, reasons))
    assert first.startswith("$ iostat -xz: n/a (overlay on") and second.startswith("  ") and len(first) <= 80


def test_sizes_as_df_writes_them() -> None:
    sizes = {0: "0", 1023: "1023", 1024: "1.0K", 1025: "1.1K", 10240: "10K", 10241: "11K", 2**20 - 1: "1.0M", 24 * 2**30: "24G"}
    assert {size: columns.human(size) for size in sizes} == sizes


# Beside the real tools.


def now_of(scope: Scope, seconds: float) -> Now:
    watch = Watch(scope)
    try:
        time.sleep(seconds)
        return watch.now()
    finally:
        watch.close()


def test_df_says_the_same() -> None:
    if not os.path.ismount("/dev/shm"):
        pytest.skip("/dev/shm is no file system of its own here")
    for _ in range(100):  # others use it too
        told = tool("df", "-h", "/dev/shm").splitlines()[1].split()
        (shown,) = (
            line.split()
            for line in columns.lines(now_of(Scope((), "none", os.getpid()), 0.0))
            if line.endswith("/dev/shm") and "$" not in line
        )
        if told == shown:
            return
    pytest.fail(f"df says {told}, doctor {shown}")


@contextmanager
def segment() -> Iterator[str]:
    """A segment of System V, removed in the end."""
    number = tool("ipcmk", "-M", "12345").split()[-1]
    try:
        yield number
    finally:
        tool("ipcrm", "-m", number)


def test_ipcs_says_the_same() -> None:
    with segment() as number:
        (told,) = (line.split() for line in tool("ipcs", "-m").splitlines() if line.split()[1:2] == [number])
        (shown,) = (line.split() for line in columns.lines(now_of(Scope((), "none", os.getpid()), 0.0)) if line.split()[1:2] == [number])
        assert shown == told
        assert told[4] == "12345"


BUSY = """
import time
held = bytearray(50_000_000)
print("ready", flush=True)
while True:
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass
    time.sleep(0.005)
"""


@contextmanager
def running(script: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that has said it is ready."""
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def rows_of(text: str, first_column: str, key: str, value: str) -> list[dict[str, str]]:
    """Rows of every table with that column whose ``key`` is ``value``."""
    found, names = [], []
    for line in text.splitlines():
        words = line.split()
        if first_column in words:
            names = words[words.index(first_column) :]
        elif names and len(words) >= len(names):
            row = dict(zip(names, words[-len(names) :], strict=True))
            found += [row] if row.get(key) == value else []
    return found


def looked_at(pid: int) -> tuple[dict[str, str], dict[str, Any]]:
    """What pidstat and doctor say of a process, both over two seconds."""
    command = ["pidstat", "-u", "-r", "-p", str(pid), "2", "1"]
    with subprocess.Popen(command, env=PLAIN, stdout=subprocess.PIPE, text=True) as beside:
        (found,) = now_of(Scope((), "none", pid), 2.0).tasks
        told: dict[str, str] = {}
        for row in rows_of(beside.communicate(timeout=30)[0], "UID", "PID", str(pid))[:2]:
            told |= row
    return told, found.as_json()


def test_pidstat_says_the_same() -> None:
    if shutil.which("pidstat") is None:
        pytest.skip("pidstat is not installed: apt-get install sysstat")
    with running(BUSY) as process:
        for attempt in range(5):  # the two looks are not quite of the same moments
            told, shown = looked_at(process.pid)
            expected = {name: pytest.approx(float(told[name]), rel=0.4, abs=slack) for name, slack in (("%CPU", 10), ("%wait", 15))}
            if float(told["%CPU"]) > 2 and {name: shown[name] for name in expected} == expected:
                break
            print(f"attempt {attempt}: pidstat {told}, doctor {shown}")
        else:
            pytest.fail("five times pidstat said otherwise")
    assert shown["RSS"] == pytest.approx(int(told["RSS"]), rel=0.05) and shown["RSS"] > 50_000_000 / 1024
    assert shown["VSZ"] == pytest.approx(int(told["VSZ"]), rel=0.05)
    assert shown["%MEM"] == pytest.approx(float(told["%MEM"]), rel=0.1, abs=0.02)
    assert (str(shown["UID"]), shown["Command"]) == (told["UID"], told["Command"])


READING = """
import mmap, os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
room = mmap.mmap(-1, 65536)
size = os.fstat(file).st_size
print("ready", flush=True)
position = 0
while True:
    os.preadv(file, [room], position)
    position = (position + 65536) % size
    time.sleep(0.002)
"""


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    """On a disk that can be read around the page cache."""
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.write(os.urandom(8 << 20))
        os.fsync(file.fileno())
    try:
        device_under(str(path), Roots())
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except (Unknown, OSError) as reason:
        pytest.skip(f"no disk is known under temporary files: {reason}; point TMPDIR at one")
    with mmap.mmap(-1, 65536) as room:
        os.preadv(descriptor, [room], 0)
    os.close(descriptor)
    return path


def test_iostat_says_the_same_of_a_planted_load(big_file: Path) -> None:
    """64 KiB a read, hundreds a second; what others do at the same time both see."""
    if shutil.which("iostat") is None:
        pytest.skip("iostat is not installed: apt-get install sysstat")
    device = device_under(str(big_file), Roots()).name
    with running(READING, str(big_file)) as process:
        for attempt in range(4):
            beside = subprocess.Popen(["iostat", "-x", "-k", "-d", device, "2", "2"], env=PLAIN, stdout=subprocess.PIPE, text=True)
            now = now_of(Scope((device,), "", process.pid), 2.0)
            told = rows_of(beside.communicate(timeout=30)[0], "Device", "Device", device)[-1]
            (shown,) = (disk.as_json() for disk in now.disks)
            assert shown["r/s"] > 20 and shown["rkB/s"] > 20 * 64
            expected = {name: pytest.approx(float(told[name]), rel=0.2, abs=slack) for name, slack in SLACK.items()}
            if {name: shown[name] for name in SLACK} == expected:
                return
            print(f"attempt {attempt}: iostat {told}, doctor {shown}")
    pytest.fail("four times iostat said otherwise")


SLACK = {"r/s": 5, "rkB/s": 200, "r_await": 0.1, "rareq-sz": 2, "w/s": 20, "aqu-sz": 0.1, "%util": 4, "%rrqm": 2}
"""The two look at the disk some milliseconds apart."""


# Which processes.


def test_a_process_and_all_it_starts_are_watched_until_they_end() -> None:
    script = """
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print("ready", flush=True)
    sys.stdin.readline()
    child.kill()
    child.wait()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None and process.stdout.readline() == "ready\n"
        watch = Watch(Scope((), "no device", process.pid))
        first = watch.now()
        assert len(first.tasks) == 2 and first.tasks[0].pid == process.pid and not watch.has_ended
        assert first.reasons.of("iostat") == "no device"
        process.stdin.write("\n")
        process.stdin.close()
        process.wait()
        last = watch.now()
        watch.close()
    assert watch.has_ended and last.tasks == []
    assert last.reasons.of("pidstat") == f"process {process.pid} has ended, or has just begun"


def test_processes_with_torch_are_found_by_what_they_have_mapped(tmp_path: Path) -> None:
    for pid, maps in (
        ("50", "7f00-7f01 r-xp 0 08:01 5 /x/torch/lib/libtorch_cpu.so\n"),
        ("51", "7f00-7f01 r-xp 0 08:01 5 /lib/libc.so.6\n"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "maps").write_text(maps)
    assert AtHand(None, str(tmp_path)).pids() == [50]
    assert os.getpid() not in AtHand(None, "/proc").pids()


def test_every_null_has_a_reason_and_every_line_fits() -> None:
    now = now_of(Scope(None, "", os.getpid()), 0.1)
    told = now.as_json()
    reasons = {entry["metric"] for entry in told["not_measured"]}
    assert {name for name in ("ipcs", "df", "dmon") if told[name] is None} <= reasons
    for disk in told["iostat"]:
        assert {f"{disk['device']} {name}" for name, value in disk.items() if value is None} <= reasons
    assert all(len(line) <= 80 for line in columns.lines(now))
