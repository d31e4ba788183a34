"""What to do where nothing could be told: what would make the next run tell more."""

from collections.abc import Iterator

from shardtools.bench.attribution import Attribution
from shardtools.bench.report.verdict_words._remedy import Remedy
from shardtools.bench.report.verdict_words._said import Said
from shardtools.bench.report.verdict_words.situation import Situation

_HIDDEN = {
    "warm": Remedy("cold", Said("begin each trial with a cold page cache", "用冷缓存开始每次测试"), "--cache cold-data"),
    "in_memory": Remedy("on_disk", Said("measure the data on the disk that training reads", "把数据放到训练所用的盘上再测")),
    "looped": Remedy("more_samples", Said("give more samples, so that none is read twice", "用更多样本，避免重复读取")),
}


def rerun(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    """At most one. Nothing where a trial ended badly: what it said says what to mend, and the same would happen again."""
    kinds = {fact.kind for fact in found.facts}
    if "status" in kinds or ("failed" in kinds and "unsure" not in kinds):
        return
    hidden, is_open = found.fact("storage_hidden"), found.verdict != "inconclusive" or bool(kinds & {"unsure", "budget"})
    if hidden is not None and not is_open:
        yield _HIDDEN[hidden.values["reason"]]
    else:
        options = f"--min-seconds {2 * situation.min_seconds:g}"
        yield Remedy("rerun", Said(f"measure longer on a quiet host, with {options}", f"在空闲的机器上用 {options} 测更久"), options)
