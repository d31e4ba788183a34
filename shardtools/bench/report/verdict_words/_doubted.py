"""What the trials of one test say about each other: where an interval comes from, why nothing is named, and why it stopped."""

from typing import Any

from shardtools.bench.attribution import MIN_RATIO
from shardtools.bench.report.verdict_words._names import short_name
from shardtools.bench.report.verdict_words._said import Said, percent, rate, spaced, times, times_zh
from shardtools.bench.report.verdict_words.situation import Situation

Values = dict[str, Any]


def interval_source(values: Values) -> Said:
    """Behind an interval that is not of the stage's own repeats; else empty."""
    if values.get("ci_by") != "baselines":
        return Said("", "")
    count = values["num_baselines"]
    return Said(f"; the interval is how much {count} trials as it is differ", f"；区间取自 {count} 次原样测试之间的差异")


def scattered(values: Values) -> Said:
    """As evidence. No stage is named where the loader as it is differs that much."""
    if _is_loader(values):
        between = _between(values)
        return Said(f"{between.en}, so no gain in it is to be trusted", f"{between.zh}，其中的提升都不可信")
    return _contradiction(values)


def why_scattered(values: Values, situation: Situation) -> Said:
    """As the reason why nothing is told."""
    if not _is_loader(values):
        told = _contradiction(values)
        return Said(f"trials and timers contradict each other ({told.en})", f"测试与计时器相互矛盾（{told.zh}）")
    between = _between(values)
    if situation.is_noisy:
        return Said(f"the host was too busy to tell ({between.en})", f"机器太忙，无法判断（{between.zh}）")
    return Said(f"the trials differ too much to tell ({between.en})", f"各次测试相差太大，无法判断（{between.zh}）")


def budget(values: Values) -> Said:
    """When it stopped, and what was planned."""
    planned, spent, rounds = (f"{values['seconds']:.0f}", f"{values['spent']:.0f}", values["rounds"])
    after = "the first round" if rounds == 1 else f"{rounds} rounds"
    return Said(
        f"stopped after {after} ({spent} s; {planned} s were planned)", f"第 {rounds} 轮后停止（用时 {spent} 秒，计划 {planned} 秒）"
    )


def _is_loader(values: Values) -> bool:
    return bool(values["fastest"] >= MIN_RATIO * values["slowest"])


def _between(values: Values) -> Said:
    slowest, fastest = rate(values["slowest"]), rate(values["fastest"])
    return Said(
        f"the same loader gave {slowest} to {fastest} samples/s within one test", f"同一加载器在一次测试中为 {slowest} 到 {fastest} 样本/秒"
    )


def _contradiction(values: Values) -> Said:
    name, share = short_name(values["stage"]), percent(values["share"] or 0.0)
    return Said(
        f"without the cost of {name.en} it was {times(values['ratio'], None)}, though by timers that is {share} of the workers' time",
        f"去掉{spaced(name.zh)}的开销后为{times_zh(values['ratio'], None)}，而按计时器它只占 worker 时间 {share}",
    )
