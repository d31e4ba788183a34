"""Whether the knee of a search is none: the last point of a curve that still rises."""

from collections.abc import Iterable, Mapping
from typing import Any

_GAIN = 1.05
"""Of the last step: what a doubling of workers has to bring to be followed."""


def is_rising_at(num_workers: int, points: Iterable[tuple[int, float]]) -> bool:
    """``points``: workers and rates of one curve; at that number it ends, and its last step brought something."""
    known = sorted(points)
    if len(known) < 2 or known[-1][0] != num_workers:
        return False
    return known[-1][1] >= _GAIN * known[-2][1]


def still_rising(matrix: Mapping[str, Any]) -> bool:
    """Of the ``matrix`` of a report: along more workers, all else as the knee has it."""
    if matrix["knee"] is None:
        return False
    cells = matrix["cells"]
    knee = cells[matrix["knee"]]
    names = ("prefetch_factor", "pin_memory", "persistent_workers")
    mine = [cell for cell in cells if not cell["num_workers"] or all(cell[name] == knee[name] for name in names)]
    points = [(cell["num_workers"], cell["throughput"]) for cell in mine if cell["throughput"] is not None and not cell["is_computed"]]
    return is_rising_at(knee["num_workers"], points)
