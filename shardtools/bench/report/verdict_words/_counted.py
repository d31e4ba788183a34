"""Facts that counters and timers gave, each as one line."""

from collections.abc import Callable
from typing import Any

from shardtools.bench.report.verdict_words._names import short_name
from shardtools.bench.report.verdict_words._said import Said, percent, rate, spaced
from shardtools.units import format_bytes, plural

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
        others = percent(values.get("others_share") or 0.0)
        by, by_zh = ("", "") if others == percent(0.0) else (f", {others} by other programs", f"，其中其他程序占 {others}")
        parts.append(Said(f"{share} of all processors are in use{by}", f"全部可用 CPU 用了 {share}{by_zh}"))
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


def settings_words(cell: Values) -> Said:
    """``8 workers``, and its prefetch factor where that is not torch's own."""
    ahead = "" if cell["prefetch_factor"] == 2 else f", prefetch factor {cell['prefetch_factor']}"
    ahead_zh = "" if cell["prefetch_factor"] == 2 else f"、预取 {cell['prefetch_factor']}"
    return Said(f"{plural(cell['num_workers'], 'worker')}{ahead}", f"{cell['num_workers']} 个 worker{ahead_zh} ")


def cap_words(values: Values) -> Said:
    """Of a search that ended for want of shared memory, in short."""
    now, wanted = (settings_words(values[name]) for name in ("at", "wanted"))
    fit, fit_zh = ("ran out of it", "用尽了它") if values["is_seen"] else ("would not fit", "放不下")
    return Said(f"up to {now.en} it still became faster, and {wanted.en} {fit}", f"到{spaced(now.zh)}仍在变快，而 {wanted.zh}{fit_zh}")


def _capped(values: Values) -> Said:
    before, now, wanted = (settings_words(values[name]) for name in ("before", "at", "wanted"))
    needed, free, ratio = values.get("wanted_bytes"), values.get("free_bytes"), f"{values['last_gain']:.1f}"
    sizes = "" if needed is None else f"; {wanted.en} need {format_bytes(needed)} of /dev/shm"
    sizes_zh = "" if needed is None else f"；{wanted.zh}需要 {format_bytes(needed)} 的 /dev/shm"
    if needed is not None and free is not None:
        sizes, sizes_zh = f"{sizes}, where {format_bytes(free)} are free", f"{sizes_zh}，可用 {format_bytes(free)}"
    return Said(
        f"with {now.en} it gives {rate(values['rate'])} samples/s, {ratio}x as fast as with {before.en}{sizes}",
        f"{now.zh}时 {rate(values['rate'])} 样本/秒，是 {before.zh}时的 {ratio} 倍{sizes_zh}",
    )


def _head_of_line(values: Values) -> Said:
    count = values["num_workers"]
    return Said(
        f"batches of {count} workers are handed out in order, so one that is late holds up those that are ready",
        f"{count} 个 worker 的批次按顺序交付，一个迟到，已就绪的也要等",
    )


def _launch(values: Values) -> Said:
    mean, late = f"{values['mean_ms']:.1f}", f"{values['p99_ms']:.1f}"
    return Said(
        f"to launch a step takes the host {mean} ms, the slowest 1 % {late} ms", f"主机启动一步平均 {mean} 毫秒，最慢 1 % 为 {late} 毫秒"
    )


COUNTED: dict[str, Callable[[Values], Said | None]] = {
    "reader": _reader,
    "timer": _timer,
    "disk": _disk,
    "blocked": _blocked,
    "pressure": _pressure,
    "cpu": _cpu,
    "throttled": _throttled,
    "transfer": _transfer,
    "capped": _capped,
    "head_of_line": _head_of_line,
    "launch": _launch,
    "shm": _shm,
    "descriptors": _descriptors,
}
