"""What mending the one thing would buy, and what binds then."""

from shardtools.bench.attribution import Attribution, Gain
from shardtools.bench.report.verdict_words._counted import settings_words
from shardtools.bench.report.verdict_words._names import consumer_name, short_name
from shardtools.bench.report.verdict_words._said import Said, rate, spaced, times, times_zh
from shardtools.bench.report.verdict_words.situation import Situation


def gain_words(found: Attribution, gain: Gain, situation: Situation) -> Said:
    """``without the cost of decode it would be 1.8x as fast (1.6-2.0x), 2,232 samples/s; then storage limits it``.

    With a consumer the gain is of the whole loop, else of the loader. Of shared memory it is beside the fastest setting that has room.
    """
    cap, loop = found.fact("capped"), found.rates.get("F")
    if cap is not None:
        now, what = cap.values["rate"], settings_words(cap.values["wanted"])
        what = Said(f"with room for {what.en} it would be at most", f"若放得下{spaced(what.zh.rstrip())}，最多可达")
    else:
        now = loop if loop is not None else found.rates.get("L")
        what = _without(found)
    to = "" if now is None else f", {rate(now * gain.ratio)} samples/s"
    to_zh = "" if now is None else f"，即 {rate(now * gain.ratio)} 样本/秒"
    then = _then(gain, situation)
    return Said(
        f"{what.en} {times(gain.ratio, gain.ci)}{to}{then.en}",
        f"{what.zh}{times_zh(gain.ratio, gain.ci)}{to_zh}{then.zh}",
    )


def _without(found: Attribution) -> Said:
    """What is thought away."""
    if found.verdict == "balanced":
        return Said("it would be at most", "最多可达")
    if found.verdict == "contention":
        return Said("if loader and training did not hold each other up it would be", "若加载器和训练互不拖累，可达")
    if found.stage == "storage":
        return Said("if the data came from memory it would be", "若数据都来自内存，可达")
    name = short_name(found.stage or found.verdict)
    return Said(f"without the cost of {name.en} it would be", f"去掉{spaced(name.zh)}的开销后可达")


def _then(gain: Gain, situation: Situation) -> Said:
    if gain.then is None:
        return Said("", "")
    if gain.then == "fed":
        consumer = consumer_name(situation)
        return Said(f"; then {consumer.en} is fed", f"；之后{spaced(consumer.zh)}就喂饱了")
    name = short_name(gain.then)
    return Said(f"; then {name.en} limits it", f"；之后瓶颈变为{spaced(name.zh)}")
