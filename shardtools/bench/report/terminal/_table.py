"""Figures side by side: rates and waiting, then what each side used."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardtools.bench.report.columns import cut, padded
from shardtools.bench.report.terminal._text import Text, number, percent
from shardtools.units import format_bytes

_NAME = 23

Json = Mapping[str, Any]


def tables(data: Json, text: Text) -> Iterator[str]:
    """At most 80 columns wide."""
    yield from _rates(data["sides"], data["consumer"]["kind"] != "none", text)
    yield ""
    yield from _used(data["sides"], text)
    yield text.of("* the most in /dev/shm, other programs' included", "* /dev/shm 峰值，含其他程序")
    remote = [side for side in data["sides"] if side["fetched"] is not None]
    if remote:
        yield ""
        yield from _fetched(remote, text)


def _rates(sides: Sequence[Json], has_consumer: bool, text: Text) -> Iterator[str]:
    columns = [
        (text.of("samples/s", "样本/秒"), 11),
        (text.of("least-most", "最低-最高"), 16),
        (text.of("first batch", "首批"), 13),
    ]
    columns += [(text.of("busy", "利用率"), 8), (text.of("waiting", "等待"), 9)] if has_consumer else []
    yield _row("", columns)
    for side in sides:
        spread = "" if side["least"] is None else f"{side['least']:,.0f}-{side['most']:,.0f}"
        cells = [number(side["throughput"], ",.0f"), spread, number(side["first_batch_s"], ".2f", " s")]
        cells += [percent(side["au"]), percent(side["wait_share"])] if has_consumer else []
        yield _row(text.name(side["name"]), [(cell, columns[i][1]) for i, cell in enumerate(cells)])


def _fetched(sides: Sequence[Json], text: Text) -> Iterator[str]:
    """Of those in buckets, a sample: what was asked of the store, and how long it took to answer."""
    columns = [
        (text.of("requests", "请求数"), 9),
        (text.of("fetched", "下载"), 11),
        (text.of("x samples", "×样本"), 10),
        (text.of("latency", "延迟"), 9),
        ("p50", 9),
        ("p99", 9),
    ]
    yield _row(text.of("a sample", "每个样本"), columns)
    for side in sides:
        found, latency = side["fetched"], side["fetched"]["latency_ms"] or dict.fromkeys(("mean", "p50", "p99"))
        cells = [
            number(found["requests_per_sample"], ".3g"),
            format_bytes(round(found["bytes_per_sample"])),
            number(side["read_amplification"], ".2f"),
            *(number(latency[name], ".3g", " ms") for name in ("mean", "p50", "p99")),
        ]
        yield _row(text.name(side["name"]), [(cell, columns[i][1]) for i, cell in enumerate(cells)])


def _used(sides: Sequence[Json], text: Text) -> Iterator[str]:
    above = [(text.of("batches", "批次"), 8), ("", 8), (text.of("disk MB/s", "磁盘 MB/s"), 11)]
    yield _row("", above)
    columns = [
        ("MB/s", 8),
        (text.of("cores", "CPU 核"), 8),
        (text.of("read", "读取"), 11),
        (text.of("start-up", "启动"), 10),
        (text.of("memory", "内存"), 10),
        (text.of("shm*", "共享内存*"), 10),
    ]
    yield _row("", columns)
    for side in sides:
        peaks = side["peaks"]
        memory = peaks["pss"] if peaks["pss"] is not None else peaks["rss"]
        cells = [
            number(side["payload_MBps"], ",.1f"),
            number(side["cpu_util"], ".1f"),
            number(side["disk_read_MBps"], ",.1f"),
            number(side["startup"]["iter_s"], ".2f", " s"),
            "n/a" if memory is None else format_bytes(memory),
            "n/a" if peaks["shm"] is None else format_bytes(peaks["shm"]),
        ]
        yield _row(text.name(side["name"]), [(cell, columns[i][1]) for i, cell in enumerate(cells)])


def _row(name: str, cells: Sequence[tuple[str, int]]) -> str:
    return padded(cut(name, _NAME - 1), _NAME) + "".join(padded(cell, columns, to_right=True) for cell, columns in cells)
