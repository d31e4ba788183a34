"""The interval of a few repeats."""

import math
import statistics
from collections.abc import Sequence

Interval = tuple[float, float]
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, 97.5 %, for 1 to 9 degrees of freedom; the last serves for more, a little too wide."""


def t_975(freedom: int) -> float:
    """For so many degrees of freedom, at least one."""
    return _T_975[min(freedom, len(_T_975)) - 1]


def interval(values: Sequence[float]) -> Interval | None:
    """95 %, around the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    half = t_975(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - half, statistics.fmean(values) + half
