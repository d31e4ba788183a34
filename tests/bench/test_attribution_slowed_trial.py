"""One trial that something else slowed: stops a stage that is dismissed for it, also one that has no timer, and also where no other gains.

The first is a control with two equal costs, as it was recorded on a busy machine: without decode the loader ought to have given twice its
rate, as without transform; that one trial gave a quarter more.
"""

import pytest
from attribution_model import STAGES, Model

from shardtools.bench.attribution import Context, attribute
from shardtools.bench.attribution._rule import decide
from shardtools.bench.attribution.result import Ablation
from shardtools.bench.spec import CacheState, Intervention, TrialSpec
from shardtools.bench.trial import TrialResult

FIRST_ROUND: dict[Intervention, tuple[float, float]] = {
    "transform": (352.0, 853.0),
    "decode": (352.0, 439.0),
    "storage": (421.0, 422.0),
    "transfer": (421.0, 444.0),
    "collate": (434.0, 400.0),
}
EQUAL = {"decode": 0.46, "transform": 0.46, "storage": 0.02, "collate": 0.01}


def found(**more: list[tuple[float, float]]) -> list[Ablation]:
    return [Ablation(stage, (pair, *more.get(stage, []))) for stage, pair in FIRST_ROUND.items()]


def test_a_stage_that_takes_as_long_is_repeated_before_it_is_dismissed() -> None:
    decision = decide(found(), shares=EQUAL)
    assert (decision.kind, set(decision.stages)) == ("more", {"transform", "decode"})


def test_with_repeats_the_two_are_equal() -> None:
    repeated = found(transform=[(382.0, 836.0), (344.0, 760.0)], decode=[(382.0, 820.0), (344.0, 755.0)])
    assert decide(repeated, shares=EQUAL).kind in ("co_bottleneck", "more", "unsure")
    assert decide(repeated, is_last=True, shares=EQUAL).kind in ("co_bottleneck", "unsure")


def test_a_stage_that_takes_no_time_is_not_repeated() -> None:
    decision = decide(found(), shares={**EQUAL, "decode": 0.02})
    assert decision.stages == ("transform",)


class Slowed:
    """A loader whose first trial without ``stage`` runs at a fraction of what it could."""

    def __init__(self, model: Model, stage: Intervention, slow: float) -> None:
        self._model, self._stage, self._slow, self.num_slowed = model, stage, slow, 0

    def run(self, spec: TrialSpec, cache: CacheState) -> TrialResult:
        result = self._model.run(spec, cache)
        if spec.intervention == self._stage and not self.num_slowed:
            self.num_slowed = 1
            result.found["throughput"] *= self._slow
        return result


def cost(**more: float) -> dict[str, float]:
    return dict.fromkeys(STAGES, 0.02) | more


SLOWED: dict[Intervention, Model] = {
    "transfer": Model(cost(), receive=0.25, noise=0.01),
    "decode": Model(cost(decode=0.5), noise=0.01),
    "storage": Model(cost(storage=0.5), noise=0.01),
}


@pytest.mark.parametrize("stage", SLOWED)
@pytest.mark.parametrize("slow", [0.2, 0.4])
def test_what_dominates_is_named_although_its_first_trial_was_slowed(stage: Intervention, slow: float) -> None:
    """Without it the loader is five times as fast; its first trial says that nothing is gained, or that half of the rate is lost."""
    model = SLOWED[stage]
    slowed = Slowed(model, stage, slow)
    found = attribute(model.spec(), slowed.run, Context(seconds=200.0), model.clock)
    assert slowed.num_slowed
    assert (found.verdict, found.stage) == (stage, stage)
