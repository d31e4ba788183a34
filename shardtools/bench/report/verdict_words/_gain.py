"""What mending the one thing would buy, and what binds then."""

from shardtools.bench.attribution import Attribution, Gain
from shardtools.bench.report.verdict_words._names import consumer_name, short_name
from shardtools.bench.report.verdict_words._said import Said, rate, spaced, times, times_zh
from shardtools.bench.report.verdict_words.situation import Situation


def gain_words(found: Attribution, gain: Gain, situation: Situation) -> Said:
    """``fixing decode alone lifts to 2,232 samples/s, 1.8x (1.6-2.0), then storage binds``.

    With a consumer the gain is of the whole loop, else of the loader.
    """
    name, loop = short_name(found.stage or found.verdict), found.rates.get("F")
    now = loop if loop is not None else found.rates.get("L")
    to = "" if now is None else f" to {rate(now * gain.ratio)} samples/s,"
    to_zh = "到" if now is None else f"到 {rate(now * gain.ratio)} 样本/秒，即"
    then = _then(gain, situation)
    if found.verdict == "balanced":
        return Said(
            f"at most {times(gain.ratio, gain.ci)} is to be gained{then.en}", f"最多可提升到 {times_zh(gain.ratio, gain.ci)}{then.zh}"
        )
    return Said(
        f"fixing {name.en} alone lifts{to} {times(gain.ratio, gain.ci)}{then.en}",
        f"只解决{spaced(name.zh)}可提升{to_zh} {times_zh(gain.ratio, gain.ci)}{then.zh}",
    )


def _then(gain: Gain, situation: Situation) -> Said:
    if gain.then is None:
        return Said("", "")
    if gain.then == "fed":
        consumer = consumer_name(situation)
        return Said(f", then {consumer.en} is fed", f"，之后{spaced(consumer.zh)}就喂饱了")
    name = short_name(gain.then)
    return Said(f", then {name.en} binds", f"，之后瓶颈变为{spaced(name.zh)}")
