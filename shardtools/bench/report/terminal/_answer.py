"""What was found: which side is faster, what limits the loader, and what to type next."""

from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.bench.report import command
from shardtools.bench.report.columns import wrapped
from shardtools.bench.report.terminal._text import COLUMNS, Text, code

_EVIDENCE_SHOWN = 2
_REMEDIES_SHOWN = 3

Json = Mapping[str, Any]


def answers(data: Json, text: Text) -> Iterator[str]:
    """The first comparison; before it that the two sides were not alike, behind it that the host was noisy, unless a verdict says so."""
    if not data["comparisons"]:
        if len(data["sides"]) > 1:
            yield text.of("Nothing could be compared.", "没有可比较的结果。")
        return
    first = data["comparisons"][0]
    doubts = [text.full(f"{text.of('Confidence: low: ', '可信度低：')}{doubt[text.lang]}") for doubt in first["doubts"]]
    num_before = len(doubts) - data["noise"]["is_noisy"]
    yield from doubts[:num_before]
    yield text.full(text.of(first["answer"], first["answer_zh"]))
    yield from () if data["verdicts"] else doubts[num_before:]


def verdicts(data: Json, text: Text) -> Iterator[str]:
    """Of each side that was attributed: the sentence, what was seen, what mending it buys, and what to do."""
    for found in data["verdicts"]:
        yield from wrapped(found[f"sentence_{text.lang}"], COLUMNS)
        gain = found["gain"]
        if gain is not None:
            yield from text.item(text.full(gain[text.lang]))
        for line in found["evidence"][:_EVIDENCE_SHOWN]:
            yield from text.item(text.full(line[text.lang]))
        yield from _remedies(data, found, text)
    for aside in data.get("asides") or []:
        yield from wrapped(text.full(aside[text.lang]), COLUMNS)
    is_open = any(found["class"] not in ("fed", "inconclusive") for found in data["verdicts"])
    if is_open and data["matrix"] is None:
        yield text.of("To search the best settings:", "搜索最合适的设置：")
        yield from code(command.bench(data, "--matrix"))


def _remedies(data: Json, found: Json, text: Text) -> Iterator[str]:
    shown = found["remedies"][:_REMEDIES_SHOWN]
    if shown:
        yield text.of("What to do:", "怎么办：")
    for number, remedy in enumerate(shown, 1):
        yield from wrapped(f"  {number}. {remedy[text.lang]}{text.of(':', '：') if remedy['options'] else ''}", COLUMNS, "     ")
        if remedy["options"]:
            is_ours = remedy["options"].startswith("--")
            is_again = is_ours and found["class"] == "inconclusive" and number == 1
            typed = (
                (command.again(data, remedy["options"]) if is_again else command.bench(data, *remedy["options"].split())) if is_ours else ""
            )
            yield from code(typed or remedy["options"])
