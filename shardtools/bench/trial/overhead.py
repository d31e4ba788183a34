"""What the instruments of the timeline mode cost: by themselves, and as trials with them differ from trials without."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT = 0.02
_FEWEST = 4
"""Trials: of fewer the spread is not known."""


@dataclass(frozen=True)
class Overhead:
    """``share`` is F(timeline) / F(throughput) - 1, from the medians: negative where the instruments slow the loop down."""

    share: float
    spread: float
    """How far trials of the same mode lie from their median at most, as a share: below this ``share`` tells nothing."""
    timers_share: float | None
    """Of the workers' time, that the timers took by their own count; None where none were on."""
    warning: str
    """One sentence where 2 % are reached; else empty."""


def instrumentation_overhead(throughputs: Sequence[float], timelines: Sequence[float], timers_share: float | None = None) -> Overhead:
    """Of rates of trials that differ in mode alone, at least one of each."""
    if not throughputs or not timelines:
        raise ValueError("expected at least one trial of each mode")
    plain, timed = statistics.median(throughputs), statistics.median(timelines)
    share = timed / plain - 1
    spread = max(abs(rate / middle - 1) for rates, middle in ((throughputs, plain), (timelines, timed)) for rate in rates)
    return Overhead(share, spread, timers_share, _warning(share, spread, timers_share or 0.0, len(throughputs) + len(timelines)))


def _warning(share: float, spread: float, timers_share: float, num_trials: int) -> str:
    limit = f"more than {100 * LIMIT:.0f} %"
    if timers_share >= LIMIT:
        return f"instrumentation disturbs this workload: timers took {100 * timers_share:.1f} % of the workers' time, {limit}"
    if -share >= LIMIT and -share > spread and num_trials >= _FEWEST:
        return f"instrumentation disturbs this workload: with it the rate differs by {100 * share:+.1f} %, {limit}"
    return ""
