"""All that ran, in its place."""

from dataclasses import dataclass, field
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
    """None: a trial with instruments, which no comparison uses."""
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
    ablation: list[dict[str, Any]] = field(default_factory=list)
    """This and what follows as the report has them: see ``schema.json``."""
    ceilings: dict[str, Any] | None = None
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    matrix: dict[str, Any] | None = None
    recommendation: dict[str, Any] | None = None
    is_interrupted: bool = False
    """By Ctrl-C: what was still to be measured is missing."""

    def of(self, side: int, is_timeline: bool) -> list[TrialResult]:
        """The trials of a side that went well: those of the timeline, or those of the blocks."""
        mode = "timeline" if is_timeline else "throughput"
        found = (trial.result for trial in self.trials if trial.side == side and trial.result.spec.mode == mode)
        return [result for result in found if result.status == "ok"]
