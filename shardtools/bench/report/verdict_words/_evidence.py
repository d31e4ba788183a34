"""Each fact of an attribution as one line."""

from collections.abc import Callable
from typing import Any

from shardtools.bench.attribution import Attribution, Fact
from shardtools.bench.report.verdict_words._counted import COUNTED
from shardtools.bench.report.verdict_words._doubted import budget, interval_source, scattered
from shardtools.bench.report.verdict_words._names import consumer_name, short_name
from shardtools.bench.report.verdict_words._said import Said, percent, rate, spaced, times, times_zh
from shardtools.bench.report.verdict_words.situation import Situation
from shardtools.units import plural

Values = dict[str, Any]


def evidence(found: Attribution, situation: Situation) -> list[Said]:
    """In the order of the facts, how long it took last. A kind that has no words here is a defect that tests find."""
    facts = [fact for fact in found.facts if fact.kind != "loader_bound" or found.fact("rates") is None]  # which has its numbers
    lines = (_line(fact, consumer_name(situation)) for fact in sorted(facts, key=lambda fact: fact.kind in _OF_TIME))
    return [line for line in lines if line is not None]


def _line(fact: Fact, consumer: Said) -> Said | None:
    if fact.kind in _OF_CONSUMER:
        return _OF_CONSUMER[fact.kind](fact.values, consumer)
    return _WORDS[fact.kind](fact.values)


def _ci(values: Values) -> tuple[float, float] | None:
    return None if values.get("low") is None or values.get("high") is None else (values["low"], values["high"])


def _au(values: Values, name: Said) -> Said:
    rates = f"{rate(values['F'])} of {rate(values['G'])} samples/s"
    return Said(
        f"{name.en} is busy {percent(values['au'])} of the time: {rates} with a batch that is always there",
        f"{name.zh}利用率（AU）{percent(values['au'])}：实测 {rate(values['F'])}，数据总是就绪时 {rate(values['G'])} 样本/秒",
    )


def _rates(values: Values) -> Said | None:
    names = {
        "F": Said("the whole loop", "完整循环"),
        "G": Said("the consumer on a resident batch", "仅计算"),
        "H": Said("the consumer with its copy", "计算加拷贝"),
        "L": Said("the loader alone", "仅加载"),
    }
    known = [(said, values[name]) for name, said in names.items() if values.get(name) is not None]
    if not known:
        return None
    return Said(
        "samples/s: " + ", ".join(f"{said.en} {rate(value)}" for said, value in known),
        "样本/秒：" + "，".join(f"{said.zh} {rate(value)}" for said, value in known),
    )


def _loader_bound(values: Values, name: Said) -> Said | None:
    if values.get("H") is None:
        return None
    return Said(
        f"the loader alone gives {rate(values['L'])} samples/s, {name.en} takes {rate(values['H'])}",
        f"加载器单独跑 {rate(values['L'])} 样本/秒，{name.zh}可吃 {rate(values['H'])}",
    )


def _copy(values: Values) -> Said:
    pinned = values.get("pinned")
    leaves = "" if pinned is None else f"; {pinned} of {values['leaves']} tensors of a batch are pinned"
    leaves_zh = "" if pinned is None else f"；每批 {values['leaves']} 个张量中 {pinned} 个在锁页内存"
    share = values.get("exposed_share")
    part = "" if share is None else f", {percent(share)} of a step"
    part_zh = "" if share is None else f"，占每步 {percent(share)}"
    speed = _copy_speed(values)
    return Said(
        f"with the copy {rate(values['H'])} samples/s, without it {rate(values['G'])}{part}{leaves}{speed.en}",
        f"含拷贝 {rate(values['H'])}，不含拷贝 {rate(values['G'])} 样本/秒{part_zh}{leaves_zh}{speed.zh}",
    )


def _copy_speed(values: Values) -> Said:
    reached, ceiling = values.get("GBps"), values.get("ceiling_GBps")
    if reached is None:
        return Said("", "")
    most = "" if not ceiling else f", {percent(reached / ceiling)} of the {ceiling:.3g} that were probed"
    most_zh = "" if not ceiling else f"，为实测上限 {ceiling:.3g} 的 {percent(reached / ceiling)}"
    return Said(f"; copies run at {reached:.3g} GB/s{most}", f"；拷贝速度 {reached:.3g} GB/s{most_zh}")


def _contention(values: Values) -> Said:
    ratio = values.get("wait_p99_over_mean")
    late = "" if ratio is None else f"; the slowest 1 % of waits are {ratio:.0f} times the mean"
    late_zh = "" if ratio is None else f"；最慢 1 % 的等待是均值的 {ratio:.0f} 倍"
    return Said(
        f"the loop gives {rate(values['F'])} samples/s, each part alone {rate(values['bound'])} at least{late}",
        f"完整循环 {rate(values['F'])} 样本/秒，各部分单独跑至少 {rate(values['bound'])}{late_zh}",
    )


def _marginal(values: Values) -> Said:
    gain = percent(1 / values["au"] - 1)
    return Said(
        f"at AU {percent(values['au'])} the loop can become at most {gain} faster", f"AU 已到 {percent(values['au'])}，最多还能再快 {gain}"
    )


def _intervention(values: Values) -> Said:
    name, ci, n = short_name(values["stage"]), _ci(values), values["n"]
    before, after, source = rate(values["baseline"]), rate(values["intervened"]), interval_source(values)
    if values["stage"] == "storage":
        what = Said("with the data proved to be in memory", "数据已确认全部在内存时")
    else:
        what = Said(f"without the cost of {name.en}", f"去掉{spaced(name.zh)}的开销后")
    gain = Said(times(values["ratio"], ci) + source.en, times_zh(values["ratio"], ci) + source.zh)
    return Said(
        f"measured in {plural(n, 'pair')} of trials: {before} samples/s as it is, {after} {what.en}, {gain.en}",
        f"{n} 组成对测试：原样 {before} 样本/秒，{what.zh} {after}，为{gain.zh}",
    )


def _runner_up(values: Values) -> Said:
    name = short_name(values["stage"])
    return Said(
        f"without the cost of {name.en}, the next, it is {times(values['ratio'], None)}",
        f"其次是{spaced(name.zh)}：去掉其开销后为{times_zh(values['ratio'], None)}",
    )


def _co_bottleneck(values: Values) -> Said:
    pairs = [(short_name(stage), ratio) for stage, ratio in zip(values["stages"], values["ratios"], strict=True)]
    return Said(
        "; ".join(f"without the cost of {name.en} the loader is {times(ratio, None)}" for name, ratio in pairs),
        "；".join(f"去掉{spaced(name.zh)}的开销后，加载速度为{times_zh(ratio, None)}" for name, ratio in pairs),
    )


def _no_stage(values: Values) -> Said:
    name, ratio = short_name(values["stage"]), values["ratio"]
    return Said(
        f"without the cost of any one stage it is {times(ratio, None)} at most ({name.en})",
        f"单独去掉任何一个阶段的开销，最多为{times_zh(ratio, None)}（{name.zh}）",
    )


def _unsure(values: Values) -> Said:
    name, ci, source = short_name(values["stage"]), _ci(values), interval_source(values)
    gain = Said(times(values["ratio"], ci), times_zh(values["ratio"], ci))
    repeats = plural(values["n"], "repeat")
    return Said(
        f"without the cost of {name.en} the loader is {gain.en}, by {repeats}, which leaves it open{source.en}",
        f"去掉{spaced(name.zh)}的开销后，加载速度为{gain.zh}，重复 {values['n']} 次仍不能确定{source.zh}",
    )


_HIDDEN = {
    "warm": Said("the page cache was warm, as asked for", "按要求使用热缓存"),
    "in_memory": Said("the files lie in memory", "文件就在内存里"),
    "no_copy": Said("a copy of it, to read without the store, would be too large here", "本机放不下它的副本，无法在没有对象存储的情况下测"),
    "looped": Said("the data is so small that it was read again from memory", "数据太小，被从内存里反复读取"),
}


def _hidden(values: Values) -> Said:
    why = _HIDDEN.get(values["reason"], Said(str(values["reason"]), str(values["reason"])))
    return Said(f"storage was not judged: {why.en}", f"没有评判存储：{why.zh}")


def _status(values: Values) -> Said:
    return Said(f"the trial ended as {values['status']}: {values['message']}", f"测试以 {values['status']} 结束：{values['message']}")


def _failed(values: Values) -> Said:
    name, how = short_name(values["stage"]), (values["status"], values["message"])
    return Said(
        f"without the cost of {name.en} nothing was measured: {how[0]}: {how[1]}",
        f"去掉{spaced(name.zh)}开销的测试失败：{how[0]}：{how[1]}",
    )


def _trials(values: Values) -> Said:
    count, seconds = values["count"], f"{values['seconds']:.0f}"
    return Said(f"told from {plural(count, 'trial')} in {seconds} s", f"依据 {count} 次测试，用时 {seconds} 秒")


_OF_TIME = ("budget", "trials")

_WORDS: dict[str, Callable[[Values], Said | None]] = {
    **COUNTED,
    "rates": _rates,
    "copy": _copy,
    "contention": _contention,
    "marginal": _marginal,
    "intervention": _intervention,
    "runner_up": _runner_up,
    "co_bottleneck": _co_bottleneck,
    "no_stage": _no_stage,
    "unsure": _unsure,
    "scattered": scattered,
    "storage_hidden": _hidden,
    "status": _status,
    "failed": _failed,
    "budget": budget,
    "trials": _trials,
}

_OF_CONSUMER: dict[str, Callable[[Values, Said], Said | None]] = {"au": _au, "loader_bound": _loader_bound}
