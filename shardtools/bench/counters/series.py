"""Readings over time, and what lies between two moments of them."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardtools.bench.not_measured import Unknown

_MAX_UNSEEN_SHARE = 0.2


@dataclass
class Series:
    """Values by name, each with the moment it was read: seconds of one clock, rising. Counters and gauges alike."""

    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def append(self, moment: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.points.setdefault(name, []).append((moment, value))

    def delta(self, name: str, begin: float, end: float) -> float:
        """How much a counter rose from ``begin`` to ``end``, read between its neighbours in time on a straight line.

        Raises Unknown where more than a fifth of the interval was not covered.
        """
        points = self._covering(name, begin, end)
        return _at(points, end) - _at(points, begin)

    def within(self, name: str, begin: float, end: float) -> list[float]:
        """The readings of a gauge. Raises Unknown where there is none in the interval."""
        values = [value for moment, value in self.points.get(name, []) if begin <= moment <= end]
        if not values:
            raise Unknown("it was not sampled in this interval")
        return values

    def _covering(self, name: str, begin: float, end: float) -> list[tuple[float, float]]:
        points = self.points.get(name, [])
        if len(points) < 2 or end <= begin:
            raise Unknown("it was sampled fewer than twice")
        covered = min(end, points[-1][0]) - max(begin, points[0][0])
        if covered < (1 - _MAX_UNSEEN_SHARE) * (end - begin):
            raise Unknown("it was sampled in a part of the interval only")
        return points


def _at(points: list[tuple[float, float]], moment: float) -> float:
    after = bisect_left(points, (moment,))
    if after == 0 or after == len(points):
        return points[min(after, len(points) - 1)][1]
    (earlier, low), (later, high) = points[after - 1], points[after]
    return low + (high - low) * (moment - earlier) / (later - earlier)
