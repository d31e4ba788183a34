"""The report in 80 columns, without colour."""

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WIDTH = 80
_STAGES_SHOWN = 3

Json = Mapping[str, Any]


def lines(data: Json) -> Iterator[str]:
    """Of what ``Report`` holds."""
    yield from _head(data)
    yield ""
    yield from _table(data["sides"])
    yield ""
    for sentence in _sentences(data):
        yield from textwrap.wrap(sentence, _WIDTH)


def _head(data: Json) -> Iterator[str]:
    uris = list(dict.fromkeys(side["uri"] for side in data["sides"]))
    names = "  vs  ".join(os.path.basename(uri.rstrip("/")) or uri for uri in uris)
    count = data["workload"]["n_samples"]
    yield f"shardtools bench   {names}" + ("" if count is None else f"   ({count:,} samples)")
    settings, machine = data["settings"], data["environment"]
    where = [_cores(machine), _device(data), f"cache {data['cache']['line']}"]
    yield " | ".join(where)
    workload = data["workload"]
    yield f"B={workload['batch_size']} W={settings['num_workers']} P={settings['prefetch_factor']} | order: {workload['order']}"
    yield from textwrap.wrap(f"{data['plan']['rule']} | host: {data['noise']['line']}", _WIDTH)


def _cores(machine: Json) -> str:
    count = machine.get("cpus_effective")
    return "cores not known" if count is None else f"{count:g} cores"


def _device(data: Json) -> str:
    gpus = data["environment"].get("gpu") or []
    if data["consumer"]["device"] == "cuda" and gpus:
        return str(gpus[0].get("name"))
    return "no accelerator used"


def _table(sides: Sequence[Json]) -> Iterator[str]:
    yield f"{'':24}{'samples/s':>10}{'least-most':>18}{'wait':>7}{'fed':>7}{'1st batch':>11}"
    for side in sides:
        spread = "" if side["least"] is None else f"{side['least']:,.0f}-{side['most']:,.0f}"
        yield (
            f"{side['name'][:23]:<24}{_number(side['throughput'], ',.0f'):>10}{spread:>18}"
            f"{_percent(side['wait_share']):>7}{_percent(side['au']):>7}{_number(side['first_batch_s'], '.2f') + ' s':>11}"
        )


def _number(value: float | None, form: str) -> str:
    return "n/a" if value is None else format(value, form)


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.0f} %"


def _sentences(data: Json) -> Iterator[str]:
    for compared in data["comparisons"]:
        yield f"{compared['b']} beside {compared['a']}: {compared['sentence']}."
    first = next(iter(data["comparisons"]), None)
    if first is not None and not first["is_clear"] and first["ci"] is not None:
        yield "Shards do not help here, as far as this can tell: local disks and a warm cache often serve small files as well."
    for side in data["sides"]:
        if side["tokens_per_s"] is not None:
            yield f"{side['name']}: {side['tokens_per_s']:,.0f} tokens/s, padding not counted."
    for side in data["sides"]:
        stages = side["stages"]
        if stages:
            shown = ", ".join(f"{name} {_percent(share)}" for name, share in stages[:_STAGES_SHOWN] if share >= 0.01)
            yield f"{side['name']}: the workers' time goes to {shown}."
    yield from (f"Note: {note}." for note in data["notes"])
    yield f"Proved: {'; '.join(data['workload']['proved'])}." if data["workload"]["proved"] else "Nothing was compared."
