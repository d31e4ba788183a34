"""Sentences beside the figures: the other comparisons, tokens, where workers spend their time, notes, and what was proved."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardtools.bench.report.terminal._text import Text, percent
from shardtools.units import plural

_STAGES_SHOWN = 3
_FELT = 0.01
_NOTES_SHOWN = 5
_STAGES_ZH = {"storage": "存储", "parse": "拆包", "decode": "解码", "transform": "变换", "collate": "拼装"}

Json = Mapping[str, Any]


def told(data: Json, text: Text) -> Iterator[str]:
    yield from (text.full(text.of(compared["answer"], compared["answer_zh"])) for compared in data["comparisons"][1:])
    for side in data["sides"]:
        yield from _tokens(side, text)
    for side in data["sides"]:
        yield from _stages(side, text)
    yield from _notes(data["notes"], text)
    if data["workload"]["proved"]:
        proved = text.of("; ", "；").join(text.told(one) for one in data["workload"]["proved"])
        yield text.full(f"{text.of('Proved before: ', '测量前已验证：')}{proved}")


def _notes(notes: Sequence[str], text: Text) -> Iterator[str]:
    """The first of them; all are in the report."""
    yield from (text.full(f"{text.of('Note: ', '注意：')}{text.told(note)}") for note in notes[:_NOTES_SHOWN])
    more = len(notes) - _NOTES_SHOWN
    if more > 0:
        yield text.of(
            f"{plural(more, 'more note')} in the report: --report DIR, or --json.", f"另有 {more} 条注意见报告（--report DIR 或 --json）。"
        )


def _tokens(side: Json, text: Text) -> Iterator[str]:
    if side["tokens_per_s"] is None:
        return
    name, rate = text.name(side["name"]), f"{side['tokens_per_s']:,.0f}"
    yield text.of(
        f"{name}: {rate} tokens/s, padding not counted; a sample is a row of tokens.",
        f"{name}：{rate} token/秒（不计填充；一个样本是一行 token）。",
    )


def _stages(side: Json, text: Text) -> Iterator[str]:
    """A verdict is told by what removing a stage gains; this only says where the time goes."""
    shown = [stage for stage in side["stages"][:_STAGES_SHOWN] if stage["share"] >= _FELT]
    if not shown:
        return
    name = text.name(side["name"])
    parts = text.of(", ", "，").join(f"{text.of(stage['name'], _STAGES_ZH[stage['name']])} {percent(stage['share'])}" for stage in shown)
    own = None if side["overhead"] is None else side["overhead"]["timers_share"]
    took = "" if own is None else text.of(f" (timers took {100 * own:.1f} %)", f"（计时器占 {100 * own:.1f} %）")
    yield text.of(f"Workers' time, {name}: {parts}{took}.", f"worker 时间，{name}：{parts}{took}。")
