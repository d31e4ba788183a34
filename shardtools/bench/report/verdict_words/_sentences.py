"""The verdict in one sentence of each language."""

from collections.abc import Callable
from typing import Any

from shardtools.bench.attribution import LATE, MIN_RATIO, Attribution
from shardtools.bench.report.verdict_words._counted import cap_words
from shardtools.bench.report.verdict_words._doubted import budget, why_scattered
from shardtools.bench.report.verdict_words._names import consumer_name, short_name, side_name_zh, stage_name
from shardtools.bench.report.verdict_words._said import Said, percent, rate, spaced, times, times_zh
from shardtools.bench.report.verdict_words.situation import Situation

_CONFIDENCE = {"high": Said("confidence high", "置信度高"), "medium": Said("confidence medium", "置信度中")}
_NOISY = Said("noisy host: run it again when nothing else runs", "机器有干扰，请在空闲时重跑")
_IS_NOISY = Said("noisy host", "机器有干扰")
"""Where the advice is to run it again already."""


def sentence(found: Attribution, situation: Situation, advice: Said | None) -> Said:
    """With the side's name and a full stop; ``advice``: the first remedy, in a clause."""
    if "inconclusive" in (found.verdict, found.confidence):
        body = _inconclusive(found, situation)
    else:
        body = _BODIES.get(found.verdict, _stage)(found, situation)
    if advice is not None:
        body = Said(f"{body.en}; {advice.en}", f"{body.zh}；建议{advice.zh}")
    noisy = _IS_NOISY if any(words in body.en for words in ("quiet host", "nothing else runs")) else _NOISY
    asides = [aside for aside in (_CONFIDENCE.get(found.confidence), _hidden(found), noisy if situation.is_noisy else None) if aside]
    asides = [aside for aside in asides if aside.en not in body.en]
    end = "" if not asides else f" ({'; '.join(aside.en for aside in asides)})"
    end_zh = "" if not asides else f"（{'；'.join(aside.zh for aside in asides)}）"
    return Said(f"{situation.name}: {body.en}{end}.", f"{side_name_zh(situation.name)}：{body.zh}{end_zh}。")


def _hidden(found: Attribution) -> Said | None:
    """A warm cache hides storage, whatever else limits."""
    fact = found.fact("storage_hidden")
    if fact is None or found.verdict in ("fed", "storage"):
        return None
    why = {
        "warm": Said("the page cache was warm", "缓存是热的"),
        "in_memory": Said("the files lie in memory", "文件在内存里"),
        "no_copy": Said("a copy of it would be too large here", "本机放不下它的副本"),
        "looped": Said("the data was read again from memory", "数据在内存里被反复读取"),
    }[fact.values["reason"]]
    return Said(f"storage not judged, since {why.en}", f"{why.zh}，未评判存储")


def _rates(found: Attribution, situation: Situation) -> Said:
    """What the loader gives, and what the consumer could take."""
    loader, most = found.rates.get("L"), found.rates.get("H") or found.rates.get("G")
    if loader is None:
        return Said("", "")
    if most is None:
        return Said(f": the loader gives {rate(loader)} samples/s in short trials", f"：短测试中加载器 {rate(loader)} 样本/秒")
    name = consumer_name(situation)
    return Said(
        f": the loader gives {rate(loader)} samples/s, {name.en} could take {rate(most)}",
        f"：加载器 {rate(loader)} 样本/秒，{name.zh}可吃 {rate(most)}",
    )


def _stage(found: Attribution, situation: Situation) -> Said:
    name, rates = stage_name(found.verdict, situation), _rates(found, situation)
    return Said(f"{name.en} limits the loader{rates.en}", f"当前瓶颈在{spaced(name.zh)}{rates.zh}")


def _fed(found: Attribution, situation: Situation) -> Said:
    name, au = consumer_name(situation), _au(found)
    busy = "" if au is None else f" (AU {percent(au)})"
    busy_zh = "" if au is None else f"（AU {percent(au)}）"
    return Said(f"{name.en} is fed{busy}; change nothing", f"{name.zh}已经喂饱{busy_zh}，无需改动")


def _au(found: Attribution) -> float | None:
    fact, full, alone = found.fact("au") or found.fact("marginal"), found.rates.get("F"), found.rates.get("G")
    if fact is not None:
        return float(fact.values["au"])
    return full / alone if full is not None and alone else None


def _h2d_copy(found: Attribution, situation: Situation) -> Said:
    with_copy, without = found.rates.get("H"), found.rates.get("G")
    name = stage_name("h2d_copy", situation)
    if with_copy is None or without is None:
        return Said(f"{name.en} limits it", f"当前瓶颈在{name.zh}")
    return Said(
        f"{name.en} limits it: {rate(with_copy)} samples/s with the copy, {rate(without)} without, and the loader gives more",
        f"当前瓶颈在{name.zh}：含拷贝 {rate(with_copy)} 样本/秒，不含拷贝 {rate(without)}，加载器供得上",
    )


def _contention(found: Attribution, _situation: Situation) -> Said:
    fact = found.fact("contention")
    late = fact.values.get("wait_p99_over_mean") if fact else None
    is_late = late is not None and late > LATE
    full, bound = (fact.values["F"], fact.values["bound"]) if fact else (found.rates.get("F"), None)
    numbers = "" if full is None or bound is None else f": {rate(full)} samples/s together, {rate(bound)} at least each alone"
    numbers_zh = "" if full is None or bound is None else f"：合在一起 {rate(full)} 样本/秒，单独跑至少 {rate(bound)}"
    if is_late:
        return Said(f"single late batches hold the loop up{numbers}", f"个别批次迟到，拖住了整个循环{numbers_zh}")
    return Said(f"loader and training hold each other up{numbers}", f"加载器和训练互相争抢 CPU{numbers_zh}")


def _balanced(found: Attribution, situation: Situation) -> Said:
    both = found.fact("co_bottleneck")
    if both is not None:
        names = [short_name(stage) for stage in both.values["stages"]]
        return Said(
            f"no single bottleneck: {' and '.join(name.en for name in names)} cost about as much, and only speeding up both helps",
            f"没有单一瓶颈：{'和'.join(name.zh for name in names)}开销相当，两者都提速才有用",
        )
    au = _au(found)
    if found.fact("marginal") is not None and au:
        gain = percent(1 / au - 1)
        return Said(
            f"no single bottleneck: AU {percent(au)}, so the loop can become at most {gain} faster",
            f"没有单一瓶颈：AU {percent(au)}，最多还能再快 {gain}",
        )
    rates, most = _rates(found, situation), found.fact("no_stage")
    if most is None:
        return Said(f"no single bottleneck{rates.en}", f"没有单一瓶颈{rates.zh}")
    name, ratio = short_name(most.values["stage"]), most.values["ratio"]
    return Said(
        f"no single bottleneck{rates.en}; without the cost of any one stage it is {times(ratio, None)} at most ({name.en})",
        f"没有单一瓶颈{rates.zh}；去掉任一阶段的开销，最多为{times_zh(ratio, None)}（{name.zh}）",
    )


def _shared_memory(found: Attribution, situation: Situation) -> Said:
    fact, cap = found.fact("status"), found.fact("capped")
    if cap is not None:
        told = cap_words(cap.values)
        return Said(f"shared memory (/dev/shm) limits the loader: {told.en}", f"当前瓶颈在共享内存（/dev/shm）：{told.zh}")
    if fact is not None and fact.values["status"] == "refused":
        return Said(
            "shared memory (/dev/shm) is too small for these settings: that was foreseen, so the loader was not run",
            "共享内存（/dev/shm）放不下这组设置：已预先算出，所以没有运行加载器",
        )
    if fact is not None:
        return Said("shared memory (/dev/shm) is too small: the loader broke off", "共享内存（/dev/shm）不足，加载器中途失败")
    rates = _rates(found, situation)
    return Said(
        f"shared memory (/dev/shm) limits how many batches may be under way{rates.en}",
        f"共享内存（/dev/shm）限制了在途批次数{rates.zh}",
    )


def _fd_limit(found: Attribution, situation: Situation) -> Said:
    fact = found.fact("descriptors")
    tensors = fact.values.get("tensors") if fact else situation.batch.get("tensors")
    each = "" if tensors is None else f": {tensors:,} tensors a batch take one each"
    each_zh = "" if tensors is None else f"：每批 {tensors:,} 个张量，各占一个"
    return Said(f"the limit of open files is too low{each}", f"文件描述符上限太低{each_zh}")


_BODIES: dict[str, Callable[[Attribution, Situation], Said]] = {
    "fed": _fed,
    "h2d_copy": _h2d_copy,
    "contention": _contention,
    "balanced": _balanced,
    "shared_memory": _shared_memory,
    "fd_limit": _fd_limit,
}


def _inconclusive(found: Attribution, situation: Situation) -> Said:
    why = _why(found, situation)
    return Said(f"Inconclusive: {why.en}", f"无法定论：{why.zh}")


def _suspected(values: dict[str, Any], situation: Situation) -> Said:
    """The stage that gained most, named as the suspect only where its gain would do for a verdict."""
    name, n = stage_name(values["stage"], situation), values["n"]
    ci = None if values.get("low") is None else (values["low"], values["high"])
    few, few_zh = (", in one trial only", "，只测了一次") if n == 1 else ("", "")
    gain, gain_zh = f"{times(values['ratio'], ci)}{few}", f"{times_zh(values['ratio'], ci)}{few_zh}"
    if values["ratio"] < MIN_RATIO:
        return Said(f"nothing stands out; without {name.en} it is {gain}", f"看不出突出的瓶颈；去掉{spaced(name.zh)}后为{gain_zh}")
    return Said(
        f"{name.en} may be what limits it, but that is not sure: without its cost the loader is {gain}",
        f"瓶颈可能在{spaced(name.zh)}，但不能确定：去掉其开销后，加载速度为{gain_zh}",
    )


def _why(found: Attribution, situation: Situation) -> Said:
    if (fact := found.fact("status")) is not None:
        return Said(
            f"a trial ended as {fact.values['status']}: {fact.values['message']}",
            f"有测试以 {fact.values['status']} 结束：{fact.values['message']}",
        )
    if (fact := found.fact("scattered")) is not None:
        return why_scattered(fact.values, situation)
    if (fact := found.fact("unsure")) is not None:
        return _suspected(fact.values, situation)
    if (fact := found.fact("failed")) is not None:
        name, message = short_name(fact.values["stage"]), fact.values["message"]
        return Said(f"the trial without the cost of {name.en} failed: {message}", f"去掉{spaced(name.zh)}开销的测试失败：{message}")
    if (fact := found.fact("budget")) is not None:
        return budget(fact.values)
    if found.verdict != "inconclusive":
        name = stage_name(found.verdict, situation)
        return Said(f"{name.en} may be what limits it, but that is not sure", f"瓶颈可能在{name.zh}，但不能确定")
    if (hidden := _hidden(found)) is not None:
        return hidden
    return Said("no cost that was taken away explains it", "去掉任何一项开销都解释不了")
