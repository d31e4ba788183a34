"""What is known of a side before it is attributed, and how trials are to be run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.bench.spec import CacheState, TrialSpec
from shardtools.bench.trial import TrialResult

Run = Callable[[TrialSpec, CacheState], TrialResult]
"""Runs a trial that begins with such a page cache. Where that is proved, ``result.watched["cache_label"]`` is what it really was."""


def _silent(_: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Context:
    """All optional; what is not given is measured, or left out of the evidence."""

    measured: Sequence[TrialResult] = ()
    """Trials of this very side, setting and consumer, mode throughput, that have been run: F, G and H need not be measured again."""
    timeline: TrialResult | None = None
    """One with timers."""
    ceilings: dict[str, Any] | None = None
    """As ``shardtools.bench.ceilings.probe`` has them, for this side."""
    seed: int = 0
    """Of the order of trials."""
    seconds: float = 90.0
    """No further repeat is begun after so long; then what is undecided is inconclusive."""
    window_seconds: float = 1.2
    """Of each trial."""
    storage_hidden: str | None = None
    """Why the cost of storage cannot be taken away, as the fact of that name has it; None where it can, or trials will tell."""
    is_noisy: bool = False
    """Above the limits of the gate: nothing is told with high confidence."""
    say: Callable[[str], None] = _silent
    """Hears a line about each trial."""
