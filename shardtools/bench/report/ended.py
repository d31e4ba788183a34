"""Windows that the data was too short for: what they had and what they were to have."""

from collections.abc import Sequence
from typing import Any

from shardtools.bench.trial import TrialResult
from shardtools.bench.window import WindowRule


def ended(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Those whose data ended before their window was long enough."""
    return [result for result in results if _is_ended(result.found.get("window"))]


def _is_ended(window: dict[str, Any] | None) -> bool:
    return window is not None and window["is_short"] and window["pass_samples"] is not None and not window["is_looped"]


def fewest_steps(results: Sequence[TrialResult]) -> tuple[int, int] | None:
    """Of those that had too few steps: the fewest, and how many were wanted; None where all had enough."""
    found = [(result.found["window"]["steps"], _wanted(result)) for result in results]
    return min(((steps, wanted) for steps, wanted in found if steps < wanted), default=None)


def _wanted(result: TrialResult) -> int:
    return WindowRule.of(result.spec.settings, min_steps=result.spec.min_steps).steps


def what_ended(results: Sequence[TrialResult]) -> str:
    """How much there was of how much, and what to do: a sentence without its full stop. ``results``: at least one, of ``ended``."""
    steps = fewest_steps(results)
    if steps is not None:
        return f"the data ended after {steps[0]} of {steps[1]} steps: give more samples, or a smaller --batch-size"
    seconds, wanted = min((result.found["window"]["wall_s"], result.spec.min_seconds) for result in results)
    return f"the data ended after {seconds:.1f} of {wanted:g} s: give more samples"
