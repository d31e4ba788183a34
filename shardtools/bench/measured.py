"""All that ran, in its place."""

from dataclasses import dataclass
from typing import Any

from shardtools.bench.request import BenchRequest
from shardtools.bench.spec import Layout, Workload
from shardtools.bench.statistics import Comparison
from shardtools.bench.trial import TrialResult


@dataclass(frozen=True)
class Trial:
    """One trial in its place."""

    side: int
    block: int | None
    """None: a trial of the timeline, which no comparison uses."""
    order_in_block: int
    cache: dict[str, Any]
    """The page cache it began with."""
    result: TrialResult


@dataclass(frozen=True)
class Measured:
    """All that ran."""

    request: BenchRequest
    layouts: list[Layout]
    workload: Workload
    trials: list[Trial]
    comparisons: list[tuple[int, int, Comparison]]

    def of(self, side: int, is_timeline: bool) -> list[TrialResult]:
        """The trials of a side that went well."""
        found = (trial.result for trial in self.trials if trial.side == side and (trial.block is None) == is_timeline)
        return [result for result in found if result.status == "ok"]
