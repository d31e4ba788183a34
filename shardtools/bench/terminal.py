"""The report in 80 columns, without colour: the answer first."""

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WIDTH = 80
_STAGES_SHOWN = 3

Json = Mapping[str, Any]


def lines(data: Json) -> Iterator[str]:
    """Of what ``Report`` holds."""
    yield _title(data)
    for sentence in _answer(data):
        yield from textwrap.wrap(sentence, _WIDTH)
    yield ""
    yield from _head(data)
    yield ""
    yield from _table(data["sides"], data["consumer"]["kind"] != "none")
    yield ""
    for sentence in _sentences(data):
        yield from textwrap.wrap(sentence, _WIDTH)


def _title(data: Json) -> str:
    uris = list(dict.fromkeys(side["uri"] for side in data["sides"]))
    names = [os.path.basename(uri.rstrip("/")) or uri for uri in uris]
    shown = names if len(set(names)) == len(names) else uris
    count = data["workload"]["n_samples"]
    title = f"shardtools bench   {'  vs  '.join(shown)}" + ("" if count is None else f"   ({count:,} samples)")
    return title if len(title) <= _WIDTH else textwrap.shorten(title, _WIDTH, placeholder=" ...")


def _answer(data: Json) -> Iterator[str]:
    if not data["comparisons"]:
        yield "Nothing was compared."
        return
    first = data["comparisons"][0]
    yield f"{first['answer']}."
    if data["noise"]["sentences"]:
        yield "Confidence: low, since the host was noisy; run it again when nothing else runs."


def _head(data: Json) -> Iterator[str]:
    settings, machine, workload = data["settings"], data["environment"], data["workload"]
    yield from textwrap.wrap(f"{_cores(machine)} | {_device(data)} | page cache {data['cache']['line']}", _WIDTH)
    yield (
        f"batches of {workload['batch_size']}, {settings['num_workers']} workers, prefetch factor {settings['prefetch_factor']}, "
        f"samples {workload['order']}"
    )
    yield from textwrap.wrap(f"{data['plan']['rule']} | host: {data['noise']['line']}", _WIDTH)


def _cores(machine: Json) -> str:
    count = machine.get("cpus_effective")
    return "cores not known" if count is None else f"{count:g} cores"


def _device(data: Json) -> str:
    gpus = data["environment"].get("gpu") or []
    if data["consumer"]["device"] == "cuda" and gpus:
        return str(gpus[0].get("name"))
    return "no accelerator used"


def _table(sides: Sequence[Json], has_consumer: bool) -> Iterator[str]:
    consumer = f"{'busy':>7}{'waiting':>9}" if has_consumer else ""
    yield f"{'':24}{'samples/s':>10}{'least-most':>17}{'first batch':>13}{consumer}"
    for side in sides:
        spread = "" if side["least"] is None else f"{side['least']:,.0f}-{side['most']:,.0f}"
        shares = f"{_percent(side['au']):>7}{_percent(side['wait_share']):>9}" if has_consumer else ""
        yield (
            f"{_cut(side['name']):<24}{_number(side['throughput'], ',.0f'):>10}{spread:>17}"
            f"{_number(side['first_batch_s'], '.2f', ' s'):>13}{shares}"
        )


def _cut(name: str) -> str:
    """Its end tells sides apart."""
    return name if len(name) <= 23 else f"...{name[-20:]}"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "n/a" if value is None else format(value, form) + unit


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.0f} %"


def _sentences(data: Json) -> Iterator[str]:
    yield from (f"{compared['answer']}." for compared in data["comparisons"][1:])
    for side in data["sides"]:
        if side["tokens_per_s"] is not None:
            yield f"{side['name']}: {side['tokens_per_s']:,.0f} tokens/s, padding not counted; a sample is a row of tokens."
    for side in data["sides"]:
        shown = ", ".join(f"{name} {_percent(share)}" for name, share in side["stages"][:_STAGES_SHOWN] if share >= 0.01)
        if shown:
            timed = "" if side["overhead"] is None else f" ({100 * side['overhead']['share']:+.1f} % in rate)"
            yield f"{side['name']}: of the workers' time, by one trial with timers{timed}, {shown}."
    yield from (f"Note: {note}." for note in data["notes"])
    if data["workload"]["proved"]:
        yield f"Proved before: {'; '.join(data['workload']['proved'])}."
