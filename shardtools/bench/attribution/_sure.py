"""What a measured gain is sure by: one rule for the confidence of a verdict and for the figure that draws gains, and where an interval
comes from."""

import math
from collections.abc import Sequence
from typing import Any

from shardtools.bench.attribution._rule import REPEATS, bounds_of, noise_of
from shardtools.bench.attribution._timers import Timed
from shardtools.bench.attribution.result import Ablation, Confidence, Fact

_FEWEST_PAIRS = 2
_MOST_SHARE = 0.98
_BEYOND = 1.5
"""Times what the stage's time explains: what is above it the stage did not cause."""


def may_be_sure(num_pairs: int, is_noisy: bool) -> bool:
    """One pair of trials may be luck; on a noisy host several may be, too."""
    return num_pairs >= _FEWEST_PAIRS and not is_noisy


def bounded(confidence: Confidence, num_pairs: int, is_noisy: bool) -> Confidence:
    """``medium`` at most where nothing may be sure."""
    return "medium" if confidence == "high" and not may_be_sure(num_pairs, is_noisy) else confidence


def interval_values(one: Ablation, found: Sequence[Ablation]) -> dict[str, Any]:
    """``low``, ``high``, and ``ci_by``: the interval of a gain and what its width was taken from."""
    low, high = bounds_of(one, found) or (None, None)
    return {"low": low, "high": high, "ci_by": _ci_by(one, found), "num_baselines": len(_baselines(found))}


def ablation_json(one: Ablation, found: Sequence[Ablation], side: int) -> dict[str, Any]:
    """One of ``ablation`` of the report, with the interval that the rule judged by. ``found``: all stages of that side."""
    bounds = bounds_of(one, found)
    rates = [list(pair) for pair in one.rates]
    told = {"ratio": one.ratio, "ci": None if bounds is None else list(bounds), "ci_by": _ci_by(one, found)}
    return {"side": side, "stage": one.stage, **told, "n": one.n, "rates": rates}


def scattered(first: Ablation, found: Sequence[Ablation], timed: Timed | None) -> Fact | None:
    """Where nothing is to be named: the loader as it is differed by more than the gain, or no such share of time explains the gain.

    None where the gain is a fair suspicion.
    """
    low, high = min(_baselines(found)), max(_baselines(found))
    share = None if timed is None else timed.most.get(first.stage)
    explained = math.inf if share is None else 1 / (1 - min(_MOST_SHARE, share))
    if first.ratio <= _BEYOND * explained and high / low <= first.ratio:
        return None
    return Fact("scattered", {"stage": first.stage, "ratio": first.ratio, "share": share, "slowest": low, "fastest": high})


def _ci_by(one: Ablation, found: Sequence[Ablation]) -> str | None:
    if one.n >= REPEATS:
        return "repeats"
    return None if noise_of(found) is None else "baselines"


def _baselines(found: Sequence[Ablation]) -> set[float]:
    return {baseline for one in found for baseline, _ in one.rates}
