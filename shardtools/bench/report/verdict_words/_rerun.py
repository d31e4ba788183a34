"""What to do where nothing could be told: what would make the next run tell more."""

from collections.abc import Iterator

from shardtools.bench.attribution import Attribution
from shardtools.bench.report.verdict_words._remedy import Remedy
from shardtools.bench.report.verdict_words._said import Said
from shardtools.bench.report.verdict_words.situation import Situation
from shardtools.bench.spec import MIN_SECONDS

_HIDDEN = {
    "warm": Remedy("cold", Said("begin each trial with a cold page cache", "用冷缓存开始每次测试"), "--cache cold-data"),
    "in_memory": Remedy("on_disk", Said("measure the data on the disk that training reads", "把数据放到训练所用的盘上再测")),
    "no_copy": Remedy("less_data", Said("measure a part of the data that fits on this machine", "取一部分本机放得下的数据来测")),
    "looped": Remedy("more_samples", Said("give more samples, so that none is read twice", "用更多样本，避免重复读取")),
}


def rerun(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    """What comes first, first. Nothing where a trial ended badly: what it said says what to mend, and the same would happen again."""
    kinds = {fact.kind for fact in found.facts}
    is_unsure = bool(kinds & {"unsure", "scattered"})
    if "status" in kinds or ("failed" in kinds and not is_unsure):
        return
    hidden, is_open = found.fact("storage_hidden"), found.verdict != "inconclusive" or is_unsure or "budget" in kinds
    if hidden is not None and not is_open:
        yield _HIDDEN[hidden.values["reason"]]
        return
    if situation.is_noisy:
        said = Said("run the same again when nothing else runs", "机器空闲时再跑一次")
        yield Remedy("quiet", said, f"--min-seconds {max(MIN_SECONDS, situation.min_seconds):g}")
    if situation.ended_steps is not None:
        yield _more_steps(*situation.ended_steps, situation.workload.batch_size)
    elif not situation.is_noisy:
        options = f"--min-seconds {max(MIN_SECONDS, 2 * situation.min_seconds):g}"
        yield Remedy("rerun", Said(f"measure longer on a quiet host, with {options}", f"在空闲的机器上用 {options} 测更久"), options)


def _more_steps(steps: int, wanted: int, batch_size: int) -> Remedy:
    """More seconds change nothing where the data is over before."""
    told = Said(f"the data ended after {steps} steps, {wanted} are wanted", f"数据在 {steps} 步后就用完了，需要 {wanted} 步")
    smaller = batch_size * steps // wanted
    if smaller < 1:
        return Remedy("more_samples", Said(f"give more samples: {told.en}", f"用更多样本：{told.zh}"))
    options = f"--batch-size {smaller}"
    return Remedy("more_steps", Said(f"give more samples, or {options}: {told.en}", f"用更多样本，或 {options}：{told.zh}"), options)
