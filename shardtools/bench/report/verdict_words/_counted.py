"""Facts that counters and timers gave, each as one line."""

from collections.abc import Callable
from typing import Any

from shardtools.bench.report.verdict_words._names import short_name
from shardtools.bench.report.verdict_words._said import Said, percent
from shardtools.units import format_bytes

Values = dict[str, Any]


def _disk(values: Values) -> Said:
    share, found = values.get("share"), []
    for name, ceiling, unit in (("MBps", "ceiling_MBps", "MB/s"), ("iops", "ceiling_iops", "IOPS")):
        if values.get(name) is not None:
            limit = values.get(ceiling)
            found.append((f"{values[name]:,.0f} {unit}", None if limit is None else f"{limit:,.0f}"))
    en = ", ".join(value + ("" if limit is None else f" of {limit} probed") for value, limit in found)
    zh = "，".join(value + ("" if limit is None else f"（实测上限 {limit}）") for value, limit in found)
    if share is None:
        return Said(f"disk: {en}", f"磁盘：{zh}")
    return Said(f"the disk is at {percent(share)} of what it was probed to give: {en}", f"磁盘达到实测上限的 {percent(share)}：{zh}")


def _cpu(values: Values) -> Said:
    parts = []
    if values.get("worker_share") is not None:
        share = percent(values["worker_share"])
        parts.append(Said(f"workers compute {share} of the time", f"worker 有 {share} 的时间在占用 CPU"))
    if values.get("host_share") is not None:
        share = percent(values["host_share"])
        parts.append(Said(f"{share} of all processors are in use", f"全部可用 CPU 用了 {share}"))
    return Said(", ".join(part.en for part in parts), "，".join(part.zh for part in parts))


def _reader(values: Values) -> Said:
    share, blocked = percent(values["share"]), percent(values["blocked_share"])
    return Said(
        f"by timers, reading and taking apart is {share} of the workers' time, {blocked} of it waiting; no trial could take it away",
        f"按计时器，读取和拆包占 worker 时间 {share}，其中 {blocked} 在等待；这一项无法单独去掉来验证",
    )


def _timer(values: Values) -> Said:
    name, share = short_name(values["stage"]), percent(values["share"])
    blocked = values.get("blocked_share")
    wait = "" if blocked is None else f", {percent(blocked)} of it waiting"
    wait_zh = "" if blocked is None else f"，其中 {percent(blocked)} 在等待"
    return Said(f"by timers, {name.en} is {share} of the workers' time{wait}", f"按计时器，{name.zh}占 worker 时间 {share}{wait_zh}")


def _transfer(values: Values) -> Said | None:
    busy, floor = values.get("utilisation"), values.get("floor_share")
    parts = []
    if busy is not None:
        parts.append(Said(f"workers are at work {percent(busy)} of the time", f"worker 只有 {percent(busy)} 的时间在干活"))
    if floor is not None:
        share = percent(floor)
        parts.append(Said(f"taking over a batch that lies ready costs {share} of a step", f"接收一个已就绪的批次占每步 {share}"))
    return Said(", ".join(part.en for part in parts), "，".join(part.zh for part in parts)) if parts else None


def _shm(values: Values) -> Said | None:
    if values.get("peak_bytes") is None or values.get("size_bytes") is None:
        return None
    peak, size, share = format_bytes(values["peak_bytes"]), format_bytes(values["size_bytes"]), percent(values["share"])
    return Said(f"/dev/shm: {peak} of {size} in use at most, {share}", f"/dev/shm 峰值 {peak}，共 {size}（{share}）")


def _descriptors(values: Values) -> Said:
    tensors, limit = values.get("tensors"), values.get("limit")
    top = "" if values.get("peak") is None else f"{values['peak']:,} "
    en = f"{top}open files of {limit:,} allowed" if limit is not None else f"{top}open files"
    zh = f"打开的文件描述符 {top.strip()}，上限 {limit:,}" if limit is not None else f"打开的文件描述符 {top.strip()}"
    more = "" if tensors is None else f"; {tensors:,} tensors a batch, one each"
    more_zh = "" if tensors is None else f"；每批 {tensors:,} 个张量，各占一个"
    return Said(en + more, zh + more_zh)


def _blocked(values: Values) -> Said:
    share = percent(values["share"])
    return Said(f"workers wait for storage {share} of their time", f"worker 有 {share} 的时间在等存储")


def _pressure(values: Values) -> Said:
    what = {"cpu": Said("a processor", "CPU"), "io": Said("a disk", "磁盘"), "memory": Said("memory", "内存")}[values["resource"]]
    share = percent(values["share"])
    return Said(f"{share} of the time some task waited for {what.en} (PSI)", f"有 {share} 的时间有任务在等{what.zh}（PSI）")


def _throttled(values: Values) -> Said:
    share = percent(values["share"])
    return Said(f"the CPU quota held the loader up in {share} of the periods", f"CPU 配额在 {share} 的调度周期里限制了加载器")


COUNTED: dict[str, Callable[[Values], Said | None]] = {
    "reader": _reader,
    "timer": _timer,
    "disk": _disk,
    "blocked": _blocked,
    "pressure": _pressure,
    "cpu": _cpu,
    "throttled": _throttled,
    "transfer": _transfer,
    "shm": _shm,
    "descriptors": _descriptors,
}
