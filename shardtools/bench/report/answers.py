"""What a comparison means, in one sentence of English and one of Chinese: faster, slower, of no use, or not known."""

from shardtools.bench.report.verdict_words import spaced
from shardtools.bench.statistics import LITTLE_GAIN, Comparison, more_blocks, percent_change


def answer(one: str, other: str, compared: Comparison, is_of_shards: bool) -> str:
    """Of the second side beside the first; ``is_of_shards``: small files or lines beside shards."""
    if compared.is_clear:
        times, as_fast, rest = compared.sentence.partition(" as fast")
        return f"{other} is {times}{as_fast} as {one}{rest}"
    if _is_little(compared):
        what = "shards do not help here" if is_of_shards else "it makes no difference here"
        return f"{other} and {one}: {what}, {compared.sentence}"
    return f"Cannot tell whether {other} is faster than {one}: {compared.sentence}; {_remedy(compared)}"


def answer_zh(one: str, other: str, compared: Comparison, is_of_shards: bool) -> str:
    """The same in Chinese, without a full stop; names as they are called there."""
    if compared.is_clear:
        return _times_zh(one, other, compared)
    if _is_little(compared):
        what = "在这台机器上分片没有帮助" if is_of_shards else "在这台机器上没有区别"
        return f"{other}与{spaced(one)}：{what}，{_range_zh(compared)}"
    return (
        f"无法判断{spaced(other)}是否比{spaced(one)}快：{_range_zh(compared)}；请加 --blocks {more_blocks(compared.n)}，在空闲的机器上重跑"
    )


def _is_little(compared: Comparison) -> bool:
    ci = compared.ci
    return ci is not None and ci[1] <= LITTLE_GAIN and ci[0] >= 1 / LITTLE_GAIN


def _remedy(compared: Comparison) -> str:
    return f"give --blocks {more_blocks(compared.n)}, on a quiet host"


def _times_zh(one: str, other: str, compared: Comparison) -> str:
    ci = compared.ci or (compared.ratio, compared.ratio)
    p = f"p = {compared.p:.3f}" if compared.p >= 0.001 else f"p = {compared.p:.1g}"
    found = f"{compared.ratio:.2f} 倍（95 % 区间 {ci[0]:.2f}–{ci[1]:.2f}），{p}"
    return f"{other}更快：吞吐是{spaced(one)}的 {found}" if compared.ratio >= 1 else f"{other}更慢：吞吐只有{spaced(one)}的 {found}"


def _range_zh(compared: Comparison) -> str:
    if compared.ci is None:
        return f"只有一组数据，没有置信区间（{percent_change(compared.ratio)}）"
    return f"没有明显差异（{percent_change(compared.ci[0])} … {percent_change(compared.ci[1])}）"
