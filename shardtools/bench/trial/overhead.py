"""What the instruments of the timeline mode cost, measured against trials without them."""

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
    """How far trials of the same mode lie from their median at most, as a share: below this an overhead cannot be seen."""
    warning: str | None
    """One sentence where 2 % are reached."""


def instrumentation_overhead(throughputs: Sequence[float], timelines: Sequence[float]) -> Overhead:
    """Of rates of trials that differ in mode alone, at least one of each."""
    if not throughputs or not timelines:
        raise ValueError("expected at least one trial of each mode")
    plain, timed = statistics.median(throughputs), statistics.median(timelines)
    share = timed / plain - 1
    spread = max(abs(rate / middle - 1) for rates, middle in ((throughputs, plain), (timelines, timed)) for rate in rates)
    if abs(share) < LIMIT:
        return Overhead(share, spread, None)
    if share > 0 or -share <= spread or len(throughputs) + len(timelines) < _FEWEST:
        warning = (
            f"the cost of instrumentation cannot be told: trials with it differ by {100 * share:+.1f} %, "
            f"and trials of one mode by up to {100 * spread:.1f} %"
        )
    else:
        warning = f"instrumentation disturbs this workload: with it the rate differs by {100 * share:+.1f} %, more than {100 * LIMIT:.0f} %"
    return Overhead(share, spread, warning)
