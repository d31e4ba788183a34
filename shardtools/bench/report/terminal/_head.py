"""What was measured, on what, and by which plan."""

import os
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.bench.report.columns import width
from shardtools.bench.report.terminal._text import COLUMNS, Text

_NOISE_SHOWN = 1

Json = Mapping[str, Any]


def title(data: Json, text: Text) -> str:
    uris = list(dict.fromkeys(side["uri"] for side in data["sides"]))
    names = [os.path.basename(uri.rstrip("/")) or uri for uri in uris]
    shown = names if len(set(names)) == len(names) else uris
    count = data["workload"]["n_samples"]
    samples = "" if count is None else text.of(f"   ({count:,} samples)", f"   （{count:,} 个样本）")
    found = f"shardtools bench   {'  vs  '.join(shown)}{samples}"
    return found if width(found) <= COLUMNS else textwrap.shorten(found, COLUMNS, placeholder=" ...")


def head(data: Json, text: Text) -> Iterator[str]:
    machine, cache = data["environment"], data["cache"]
    yield f"{_cores(machine, text)} | {_device(data, text)} | {text.of('page cache', '页缓存')} {text.told(cache['line'])}"
    yield _loader(data, text)
    yield f"{text.told(data['plan']['rule'])} | {text.of('host: ', '主机：')}{_noise(data['noise'], text)}"


def _noise(noise: Json, text: Text) -> str:
    """The first of what was heard; all of it is in the report."""
    sentences = noise["sentences"]
    if not sentences:
        return text.told(noise["line"])
    more = len(sentences) - _NOISE_SHOWN
    also = text.of(f"; and {more} more in the report", f"；另有 {more} 条见报告") if more > 0 else ""
    shown = text.of("; ", "；").join(text.told(one) for one in sentences[:_NOISE_SHOWN])
    return f"{text.of('noisy: ', '有干扰：')}{shown}{also}"


def _loader(data: Json, text: Text) -> str:
    settings, workload = data["settings"], data["workload"]
    order = text.of(workload["order"], {"shuffled": "打乱", "sequential": "顺序"}.get(workload["order"], workload["order"]))
    count, ahead = settings["num_workers"], settings["prefetch_factor"]
    workers = "1 worker" if count == 1 else f"{count} workers"
    return text.of(
        f"batches of {workload['batch_size']}, {workers}, prefetch factor {ahead}, samples {order}",
        f"批大小 {workload['batch_size']}，{count} 个 worker，预取 {ahead}，样本{order}",
    )


def _cores(machine: Json, text: Text) -> str:
    count = machine.get("cpus_effective")
    return text.of("cores not known", "核数未知") if count is None else text.of(f"{count:g} cores", f"{count:g} 核")


def _device(data: Json, text: Text) -> str:
    gpus = data["environment"].get("gpu") or []
    if data["consumer"]["device"] == "cuda" and gpus:
        return str(gpus[0].get("name"))
    return text.of("no accelerator used", "未使用加速卡")
