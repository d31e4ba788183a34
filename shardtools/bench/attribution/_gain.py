"""What fixing one stage buys, and what binds then."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from shardtools.bench.attribution._rule import bounds_of
from shardtools.bench.attribution._timers import Reader, Timed
from shardtools.bench.attribution.result import Ablation, Gain, VerdictClass
from shardtools.bench.spec import FED_AU

Rates = dict[str, float | None]
_FELT = 1.05
"""A stage whose removal gains less is not told to be the next."""


def medians(one: Ablation) -> tuple[float, float]:
    """Samples a second, as it is and without the stage."""
    return statistics.median(pair[0] for pair in one.rates), statistics.median(pair[1] for pair in one.rates)


def baseline_rate(ablations: Sequence[Ablation]) -> float:
    """L: the median over all baselines, those shared by two stages once."""
    return statistics.median({baseline for one in ablations for baseline, _ in one.rates})


@dataclass(frozen=True)
class Binding:
    """What else there is that may bind."""

    reader: Reader | None
    timed: Timed | None
    rates: Rates


def of_stage(first: Ablation, ablations: Sequence[Ablation], binding: Binding) -> Gain:
    """The measured gain. With a consumer it ends where the consumer binds."""
    others = {str(one.stage): one.ratio for one in ablations if one.stage != first.stage}
    if binding.reader is not None:
        others["parse"] = binding.reader.ratio
    then = _next(others, binding.timed, first.stage)
    return _capped(first.ratio, bounds_of(first, ablations), then, binding.rates)


def of_reader(reader: Reader, ablations: Sequence[Ablation], binding: Binding) -> Gain:
    """The gain that timers imply, which has no interval."""
    then = _next({str(one.stage): one.ratio for one in ablations}, binding.timed, "parse")
    return _capped(reader.ratio, None, then, binding.rates)


def of_loop(verdict: VerdictClass | None, rates: Rates) -> Gain | None:
    """Of a copy that costs nothing, or of a loop that reaches what its parts allow: up to the device, or up to the loader, whatever
    limits that. None for other verdicts."""
    loop, resident, loader = rates["F"], rates["G"], rates["L"]
    if loop is None or resident is None or loader is None or verdict not in ("h2d_copy", "contention"):
        return None
    consumer = resident if verdict == "h2d_copy" or rates["H"] is None else rates["H"]
    return Gain(max(1.0, min(loader, consumer) / loop), None, "fed" if FED_AU * resident <= min(loader, consumer) else None)


def _next(ratios: dict[str, float], found: Timed | None, without: str) -> VerdictClass | None:
    """The largest of what is left: by gain, else by the workers' time."""
    stage = max(ratios, key=lambda name: ratios[name], default=None)
    if stage is not None and ratios[stage] >= _FELT:
        return cast(VerdictClass, stage)
    return cast("VerdictClass | None", None if found is None else found.largest(without))


def _capped(ratio: float, ci: tuple[float, float] | None, then: VerdictClass | None, rates: Rates) -> Gain:
    loop, resident, loader = rates["F"], rates["G"], rates["L"]
    if loop is None or resident is None or loader is None:
        return Gain(ratio, ci, then)
    consumer = rates["H"] if rates["H"] is not None else resident
    most = max(1.0, consumer / loop)
    capped = None if ci is None else (min(ci[0], most), min(ci[1], most))
    if ratio * loader < consumer:
        return Gain(max(1.0, min(ratio, most)), capped, then)
    return Gain(most, capped, "fed" if consumer >= FED_AU * resident else "h2d_copy")
