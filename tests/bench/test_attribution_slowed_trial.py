"""A control with two equal costs, as it was recorded on a busy machine: stops a stage that is dismissed for one trial something slowed.

Without decode the loader ought to have given twice its rate, as without transform; that one trial gave a quarter more.
"""

from shardtools.bench.attribution._rule import decide
from shardtools.bench.attribution.result import Ablation
from shardtools.bench.spec import Intervention

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
