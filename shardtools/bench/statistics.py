"""Two sides compared over blocks: how many times as fast, how sure, and in which words.

A block is one trial of each side. Of each block only the ratio counts, as r = ln(second / first): what slows both trials of a block
slows neither side. Steps inside a trial are never replicates; they repeat each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_DIFFERENCE = 0.03
"""Ratios from 0.97 to 1.03 are no difference that anyone should act on."""
_BLOCKS_AGAIN = 12
LITTLE_GAIN = 1.10
"""An interval that ends below this leaves at most a tenth to gain, which is an answer; a wider one is none."""
MAX_BLOCKS = 20
"""The sign-flip test counts 2^n cases."""
_MANY_BLOCKS = 8
"""From here on the median is resampled; fewer blocks make too few different medians."""
_NUM_RESAMPLES = 10_000
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, 97.5 %, for 1 to 9 degrees of freedom; the last serves for more, a little too wide."""
_MAD_LIMIT = 14.826
"""Ten normal standard deviations, since a MAD is 0.6745 of one; the constant of hyperfine."""

_MANY_TIMES = 4.0
_FEWEST_FOR_P = 6
"""With five blocks p is 0.0625 at least."""
_ROUNDING = 1e-9

Array = NDArray[np.float64]
Interval = tuple[float, float]


def t_975(freedom: int) -> float:
    """Student's t, 97.5 %, for so many degrees of freedom, at least one."""
    return _T_975[min(freedom, len(_T_975)) - 1]


def t_interval(values: Sequence[float] | Array) -> Interval | None:
    """95 % around the mean, by Student's t; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, half = float(np.mean(values)), t_975(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean - half, mean + half


@dataclass(frozen=True)
class Comparison:
    """The second side against the first: above 1 the second is faster."""

    ratio: float
    """Of throughputs: exp of the median r. The median of an even number of blocks is the mean of the middle two."""
    ci: tuple[float, float] | None
    """95 % interval of the ratio; None for a single block. In replays 91 to 96 % held the true ratio: blocks are added until it is narrow
    enough, which favours intervals that are narrow by luck."""
    p: float
    """Exact two-sided sign-flip test of r: of all ways to swap the sides within blocks, the share at least as far from no difference."""
    n: int
    """Blocks."""
    is_clear: bool
    """The interval lies wholly outside 0.97 to 1.03."""
    outliers: tuple[int, ...]
    """Blocks whose r is more than 14.826 MAD from the median. They count like the others and are shown."""
    mean_ratio: float
    """exp of the mean r, the centre of a t-interval; printed where it and ``ratio`` part."""
    method: str
    """Of the interval: ``t`` below 8 blocks, else ``bootstrap``; ``none`` for a single block."""
    sentence: str
    """``2.31x as fast (2.20-2.40x), p = 0.031`` or ``no clear difference (-2 % ... +4 %)``; what it is about is for the caller to say."""

    @property
    def half_width(self) -> float:
        """Of the interval of r: 0.05 is plus or minus 5 %. Infinite for a single block."""
        return math.inf if self.ci is None else math.log(self.ci[1] / self.ci[0]) / 2

    def as_json(self) -> dict[str, Any]:
        ci = None if self.ci is None else list(self.ci)
        names = ("ratio", "p", "n", "is_clear", "mean_ratio", "method", "sentence")
        return {"ci": ci, "outliers": list(self.outliers)} | {name: getattr(self, name) for name in names}


def compare(blocks: Sequence[tuple[float, float]]) -> Comparison:
    """Throughputs (first, second) of each block, in the order they ran, compared.

    The same blocks give the same answer: resampling is seeded. Raises ValueError for no block, more than ``MAX_BLOCKS``, and for
    throughputs that are not positive: a trial that failed leaves its block out.
    """
    r = _log_ratios(blocks)
    low_high = _interval(r)
    ci = None if low_high is None else (math.exp(low_high[0]), math.exp(low_high[1]))
    ratio, p = math.exp(float(np.median(r))), _sign_flip_p(r)
    is_clear = ci is not None and (ci[0] > 1 + NO_DIFFERENCE or ci[1] < 1 - NO_DIFFERENCE)
    return Comparison(
        ratio,
        ci,
        p,
        len(r),
        is_clear,
        _outliers(r),
        math.exp(float(np.mean(r))),
        "none" if ci is None else "t" if len(r) < _MANY_BLOCKS else "bootstrap",
        _sentence(ratio, ci, is_clear, _p_words(p, len(r))),
    )


def _log_ratios(blocks: Sequence[tuple[float, float]]) -> Array:
    if not 1 <= len(blocks) <= MAX_BLOCKS:
        raise ValueError(f"expected 1 to {MAX_BLOCKS} blocks, got {len(blocks)}")
    for block, pair in enumerate(blocks):
        if not all(math.isfinite(rate) and rate > 0 for rate in pair):
            raise ValueError(f"expected two positive throughputs, got {pair[0]!r} and {pair[1]!r} in block {block}")
    rates = np.array(blocks, np.float64)
    r: Array = np.log(rates[:, 1] / rates[:, 0])
    return r


def _interval(r: Array) -> Interval | None:
    """95 % interval of r.

    Of few blocks the t-interval around the mean, of many the percentiles of resampled medians. A t-interval of six blocks that hold one
    outlier is very wide: then nothing can be told from six, and the stop rule of ``blocks`` asks for more, where the median forgets it.
    """
    if len(r) < _MANY_BLOCKS:
        return t_interval(r)
    low_middle, high_middle = _middles(len(r))
    ordered = np.sort(r)
    low, high = np.quantile((ordered[low_middle] + ordered[high_middle]) / 2, (0.025, 0.975))
    return float(low), float(high)


@cache
def _middles(num_blocks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two middle ones of each of 10,000 resamples, as places among the sorted blocks; one and the same where the number is odd.

    A resample's median depends on which blocks were drawn only through these, so one drawing serves all comparisons of as many blocks.
    """
    random = np.random.Generator(np.random.Philox(0))
    drawn = np.sort(random.integers(0, num_blocks, (_NUM_RESAMPLES, num_blocks), np.int64), axis=1)
    return drawn[:, (num_blocks - 1) // 2].copy(), drawn[:, num_blocks // 2].copy()


def _sign_flip_p(r: Array) -> float:
    """Of all 2^n choices of signs, the share whose sum is at least as far from 0 as that of r."""
    sums = np.zeros(1)
    for value in r:
        sums = np.concatenate([sums + value, sums - value])
    rounding = _ROUNDING * float(np.sum(np.abs(r)))
    return float(np.mean(np.abs(sums) >= abs(float(np.sum(r))) - rounding))


def _outliers(r: Array) -> tuple[int, ...]:
    away = np.abs(r - np.median(r))
    limit = max(_MAD_LIMIT * float(np.median(away)), _ROUNDING)
    return tuple(int(block) for block in np.flatnonzero(away > limit))


def _sentence(ratio: float, ci: tuple[float, float] | None, is_clear: bool, p_words: str) -> str:
    if ci is None:
        return f"a single block has no interval ({percent_change(ratio)})"
    if not is_clear:
        return f"no clear difference ({percent_change(ci[0])} ... {percent_change(ci[1])})"
    return f"{ratio:.2f}x as fast ({ci[0]:.2f}-{ci[1]:.2f}x), {p_words}"


def percent_change(ratio: float) -> str:
    """``+4 %``; a change that rounds to nothing is ``0 %``, a large one ``12x``."""
    if ratio >= _MANY_TIMES:
        return f"{ratio:,.0f}x"
    change = round(100 * (ratio - 1))
    return f"{change:+d} %" if change else "0 %"


def _p_words(p: float, num_blocks: int) -> str:
    """``p = 0.031``; and where p could not have been smaller than 0.05 at all, that."""
    said = f"p = {p:.3f}" if p >= 0.001 else f"p = {p:.1g}"
    if num_blocks >= _FEWEST_FOR_P:
        return said
    return f"{said} ({num_blocks} blocks cannot bring it below {2.0 ** (1 - num_blocks):.3g})"


def more_blocks(num_blocks: int) -> int:
    """Where so many left a comparison open."""
    return min(MAX_BLOCKS, max(_BLOCKS_AGAIN, 2 * num_blocks))
