"""What a comparison means, in one sentence: faster, slower, of no use, or not known."""

from shardtools.bench.statistics import MAX_BLOCKS, Comparison

_LITTLE = 1.10
"""An interval that ends below this leaves at most a tenth to gain, which is an answer; a wider one is none."""


def answer(one: str, other: str, compared: Comparison, is_of_shards: bool) -> str:
    """Of the second side beside the first; ``is_of_shards``: small files or lines beside shards."""
    if compared.is_clear:
        return f"{other} is {compared.sentence}, than {one}"
    ci = compared.ci
    if ci is not None and ci[1] <= _LITTLE and ci[0] >= 1 / _LITTLE:
        what = "shards do not help here" if is_of_shards else "it makes no difference here"
        return f"{other} and {one}: {what}, {compared.sentence}"
    return f"Cannot tell whether {other} is faster than {one}: {compared.sentence}; {_remedy(compared)}"


def _remedy(compared: Comparison) -> str:
    blocks = min(MAX_BLOCKS, max(12, 2 * compared.n))
    return f"give --blocks {blocks}, on a quiet host"
