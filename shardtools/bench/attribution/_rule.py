"""Which stage limits the loader, from what it gained when each was taken away: the rule alone, without running anything.

A stage is blamed where its median gain is at least 1.15, the interval lies above 1.05, and it leads every other stage by 1.15, surely
by 1.10. Where two stages gain about as much there is no single bottleneck. What the repeats leave open is repeated, and at
last said to be inconclusive: never is a stage blamed for being the largest of several that are equal but for noise.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shardtools.bench.attribution.result import Ablation
from shardtools.bench.statistics import Interval, t_975, t_interval

MIN_RATIO = 1.15
MIN_LOW = 1.05
MIN_LEAD = 1.15
MIN_SURE_LEAD = 1.10
"""The lower end of the interval of the lead."""
REPEATS = 3
MOST_REPEATS = 8
_NO_HOPE = 1.08
"""No stage gained so much in the first round: repeats would not find one that gains 1.15."""
_SURE_LEAD = 1.4
"""Over a stage that ran once."""
_AS_LONG = 0.5
"""Of the share of time that the leader's gain implies: a stage that may take so much is not dismissed by one trial, which something else
may have slowed."""
_LONG = 1 - 1 / _SURE_LEAD
"""Nor is one whose share of time would let it gain 1.4, however little the leader gains."""
_MOST_FOLLOWED = 3
_MIN_READER = 1.3
"""Implied by timers alone, which is less than a measured gain."""


@dataclass(frozen=True)
class Decision:
    """``more``: those of ``stages`` are to be repeated. Else the stages that are named: one, the equal ones, or the largest."""

    kind: Literal["stage", "reader", "co_bottleneck", "no_stage", "unsure", "more"]
    stages: tuple[str, ...]


def decide(
    found: Sequence[Ablation], reader: float | None = None, is_last: bool = False, shares: Mapping[str, float] | None = None
) -> Decision:
    """``reader``: the gain that timers imply for reading and parsing, which no intervention takes away. ``is_last``: no repeat follows.
    ``shares``: of the workers' time, the most that each stage may have taken.

    In the first round every stage has one repeat; after that those that ``more`` names have one more each time.
    """
    ranked = sorted(found, key=lambda one: -one.ratio)
    best = ranked[0].ratio if ranked else 1.0
    if reader is not None and reader >= max(_MIN_READER, MIN_LEAD * best):
        return Decision("reader", ("parse",))
    followed = _followed(ranked, best, shares or {})
    if not followed:
        return Decision("no_stage", tuple(one.stage for one in ranked[:1]))
    judged = _Judged(followed, noise_of(found))
    is_open = any(one.n < REPEATS for one in followed) or judged.is_open()
    if is_open and not is_last and max(one.n for one in followed) < MOST_REPEATS:
        return Decision("more", tuple(one.stage for one in followed))
    return judged.final(reader)


def _followed(ranked: Sequence[Ablation], best: float, shares: Mapping[str, float]) -> Sequence[Ablation]:
    """Those that may be first, in order: near the best, or known to take long. Where no gain is worth a repeat none is near."""
    least = max(_LONG, _AS_LONG * (1 - 1 / best))

    def may_be_first(one: Ablation) -> bool:
        is_near = one.ratio * _SURE_LEAD > best and (best >= _NO_HOPE or one.n >= REPEATS)
        return is_near or shares.get(one.stage, 0.0) > least

    return [one for one in ranked if may_be_first(one)][:_MOST_FOLLOWED]


@dataclass(frozen=True)
class Noise:
    """Of one trial, as baselines differ: what stands for the spread of repeats where there were too few of them."""

    spread: float
    """Standard deviation of log rates."""
    num_baselines: int

    def around(self, mean: float, num_repeats: float) -> Interval:
        """95 % around a mean of so many log ratios."""
        half = t_975(self.num_baselines - 1) * math.sqrt(2 / num_repeats) * self.spread
        return mean - half, mean + half


def noise_of(found: Sequence[Ablation]) -> Noise | None:
    """None for fewer than three baselines."""
    baselines = {baseline for one in found for baseline, _ in one.rates}
    if len(baselines) < REPEATS:
        return None
    return Noise(statistics.stdev(map(math.log, baselines)), len(baselines))


def gain_interval(one: Ablation, noise: Noise | None) -> Interval | None:
    """95 % of the log of the gain: of its own repeats from three on, else from the noise of baselines; None where neither is known."""
    if one.n >= REPEATS:
        return t_interval(one.log_ratios)
    return None if noise is None else noise.around(statistics.fmean(one.log_ratios), one.n)


def bounds_of(one: Ablation, found: Sequence[Ablation]) -> Interval | None:
    """95 % of the gain itself, as ``gain_interval`` has it."""
    low_high = gain_interval(one, noise_of(found))
    return None if low_high is None else (math.exp(low_high[0]), math.exp(low_high[1]))


@dataclass(frozen=True)
class _Judged:
    """The largest gains, in order."""

    followed: Sequence[Ablation]
    noise: Noise | None

    def is_open(self) -> bool:
        """Whether repeats may still change the answer."""
        first, *others = self.followed
        if first.ratio < MIN_RATIO:
            found = gain_interval(first, self.noise)
            return found is None or found[1] > math.log(MIN_RATIO * MIN_LEAD)
        return not self._is_gain(first) or any(self._is_lead_open(first, other) for other in others)

    def final(self, reader: float | None) -> Decision:
        """With what is there."""
        first, *others = self.followed
        if first.ratio < MIN_RATIO:
            return Decision("no_stage", (first.stage,))
        if not self._is_gain(first):
            return Decision("unsure", (first.stage,))
        equal: list[str] = [other.stage for other in others if first.ratio < MIN_LEAD * other.ratio]
        if reader is not None and first.ratio < MIN_LEAD * reader:
            equal.append("parse")
        if equal:
            return Decision("co_bottleneck", (first.stage, *equal))
        unsure = [other.stage for other in others if not self._is_sure(first, other)]
        return Decision("unsure", (first.stage, *unsure)) if unsure else Decision("stage", (first.stage,))

    def _is_gain(self, one: Ablation) -> bool:
        found = gain_interval(one, self.noise)
        return one.ratio >= MIN_RATIO and found is not None and found[0] > math.log(MIN_LOW)

    def _is_lead_open(self, first: Ablation, other: Ablation) -> bool:
        lead = self._lead(first, other)
        if first.ratio < MIN_LEAD * other.ratio:
            return lead is None or lead[1] > math.log(MIN_LEAD**2)
        return not self._is_sure(first, other)

    def _is_sure(self, first: Ablation, other: Ablation) -> bool:
        lead = self._lead(first, other)
        return lead is not None and lead[0] > math.log(MIN_SURE_LEAD)

    def _lead(self, first: Ablation, other: Ablation) -> Interval | None:
        """95 % of the log of how far one leads another. Repeats of one round have the same or neighbouring baselines, which cancel."""
        lead = [one - two for one, two in zip(first.log_ratios, other.log_ratios, strict=False)]
        if len(lead) >= REPEATS:
            return t_interval(lead)
        difference = statistics.fmean(first.log_ratios) - statistics.fmean(other.log_ratios)
        return None if self.noise is None else self.noise.around(difference, 1 / (1 / first.n + 1 / other.n))
