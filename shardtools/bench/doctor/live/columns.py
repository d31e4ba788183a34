"""The columns of the originals, in 80 characters: what does not fit is in the JSON."""

import pwd
import textwrap
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from shardtools.bench.counters.gpu import GpuUse
from shardtools.bench.counters.host import SharedMemory
from shardtools.bench.counters.segments import Segment
from shardtools.bench.doctor.live.disks import DiskUse
from shardtools.bench.doctor.live.look import Now
from shardtools.bench.doctor.live.tasks import TaskUse

_WIDTH = 80
_MOST_ROWS = 10
_SHM = "/dev/shm"
_DISK = f"{'Device':<12}{'r/s':>8}{'rkB/s':>11}{'r_await':>8}{'w/s':>8}{'wkB/s':>11}{'w_await':>8}{'aqu-sz':>7}{'%util':>7}"
_CPU = f"{'UID':>7}{'PID':>10}{'%usr':>8}{'%system':>8}{'%guest':>8}{'%wait':>8}{'%CPU':>8}{'CPU':>6}  Command"
_MEMORY = f"{'UID':>7}{'PID':>9}{'minflt/s':>10}{'majflt/s':>10}{'VSZ':>10}{'RSS':>10}{'%MEM':>7}  Command"
_SEGMENTS = f"{'key':<11}{'shmid':<11}{'owner':<11}{'perms':<11}{'bytes':<13}{'nattch':<9}status"
_DF = f"{'Filesystem':<16}{'Size':>5}  Used Avail Use% Mounted on"
_DMON = ("# gpu   pwr gtemp    sm   mem   enc   dec  mclk  pclk", "# Idx     W     C     %     %     %     %   MHz   MHz")


def lines(now: Now) -> Iterator[str]:
    """Each table under the command whose it is; one line where there is nothing to show, with the reason."""
    yield from _part("iostat -xz", now, "iostat", [_DISK, *map(_disk, now.disks)] if now.disks else ["no device did anything"])
    yield from _part("pidstat -u", now, "pidstat", [_CPU, *_rows(now.tasks, _cpu, lambda task: task.cpu_pct)])
    if now.tasks:
        yield from _part("pidstat -r", now, "pidstat", [_MEMORY, *_rows(now.tasks, _memory, lambda task: task.rss_bytes)])
    yield from _part("ipcs -m", now, "ipcs", [_SEGMENTS, *map(_segment, now.segments)] if now.segments else ["none"])
    yield from _part(f"df -h {_SHM}", now, "df", [_DF, _df(now.shm, now.shm_source)] if now.shm else ["n/a"])
    yield from _part("nvidia-smi dmon", now, "dmon", [*_DMON, *map(_gpu, now.gpus or [])])


def _rows(tasks: Sequence[TaskUse], row: Callable[[TaskUse], str], weight: Callable[[TaskUse], float]) -> Iterator[str]:
    """Those that take most, in the order of their numbers, and how many there are beside them: 64 workers would fill two screens."""
    heaviest = sorted(tasks, key=weight, reverse=True)[:_MOST_ROWS]
    yield from (row(task) for task in tasks if task in heaviest)
    rest = [task for task in tasks if task not in heaviest]
    if rest:
        cpu_pct, rss = sum(task.cpu_pct for task in rest), human(sum(task.rss_bytes for task in rest))
        yield f"    and {len(rest)} that take less: {cpu_pct:.0f} %CPU, {rss} RSS together"


def _part(title: str, now: Now, name: str, rows: list[str]) -> Iterator[str]:
    reason = now.reasons.of(name)
    if reason is None and len(rows) > 1:
        yield f"$ {title}"
        yield from rows
    else:
        nothing = rows[0] if reason is None else f"n/a ({reason})"
        yield from textwrap.wrap(f"$ {title}: {nothing}", _WIDTH, subsequent_indent="  ")


def _disk(disk: DiskUse) -> str:
    return (
        f"{disk.device:<12}{disk.reads_per_s:>8.2f}{disk.read_kib_per_s:>11.2f}{_or_dash(disk.read_await_ms):>8}"
        f"{disk.writes_per_s:>8.2f}{disk.written_kib_per_s:>11.2f}{_or_dash(disk.write_await_ms):>8}"
        f"{disk.aqu_sz:>7.2f}{disk.util_pct:>7.2f}"
    )


def _cpu(task: TaskUse) -> str:
    return (
        f"{task.uid:>7}{task.pid:>10}{task.user_pct:>8.2f}{task.system_pct:>8.2f}{task.guest_pct:>8.2f}"
        f"{_or_dash(task.wait_pct):>8}{task.cpu_pct:>8.2f}{task.last_cpu:>6}  {task.command}"
    )


def _memory(task: TaskUse) -> str:
    return (
        f"{task.uid:>7}{task.pid:>9}{task.minor_faults_per_s:>10.2f}{task.major_faults_per_s:>10.2f}"
        f"{task.virtual_bytes // 1024:>10}{task.rss_bytes // 1024:>10}{_or_dash(task.memory_pct):>7}  {task.command}"
    )


def _segment(segment: Segment) -> str:
    words = f"{'dest ' if segment.is_ending else ''}{'locked' if segment.is_locked else ''}"
    return (
        f"{f'0x{segment.key:08x}':<11}{segment.shmid:<11}{_owner(segment.uid):<10.10} {segment.permissions:<11o}"
        f"{segment.segment_bytes:<13}{segment.num_attached:<9}{words}"
    ).rstrip()


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _df(shm: SharedMemory, source: str | None) -> str:
    used_pct = -(-100 * shm.used_bytes // max(1, shm.size_bytes))
    size, used, free = map(human, (shm.size_bytes, shm.used_bytes, shm.free_bytes))
    return f"{source or 'n/a':<16}{size:>5} {used:>5} {free:>5} {used_pct:>3}% {_SHM}"


def human(num_bytes: int) -> str:
    """As ``df -h`` writes sizes: rounded up, one decimal below ten of a unit."""
    if num_bytes < 1024:
        return str(num_bytes)
    unit = 0
    value = Fraction(num_bytes)
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    tenths = -(-value * 10 // 1)
    if tenths < 100:
        return f"{tenths // 10}.{tenths % 10}{'BKMGTP'[unit]}"
    whole = -(-value // 1)
    return f"{whole}{'BKMGTP'[unit]}" if whole < 1024 else f"1.0{'BKMGTPE'[unit + 1]}"


def _gpu(gpu: GpuUse) -> str:
    values = (gpu.power_w, gpu.temperature_c, gpu.sm_pct, gpu.memory_pct, gpu.encoder_pct, gpu.decoder_pct)
    numbers = (*values, gpu.memory_mhz, gpu.processor_mhz)
    return f"{gpu.index:>5}" + "".join(f"{'-' if number is None else format(number, '.0f'):>6}" for number in numbers)


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
