"""The whole rule over hundreds of simulated loaders with noise of 1 to 5 %: stops a verdict that noise makes, a stage that is blamed
where several cost the same, and attribution that takes too many trials."""

import random
from collections import Counter
from typing import Any

import pytest
from attribution_model import STAGES, Model, planted, seconds_per_sample

from shardtools.bench.attribution import Attribution, Context, attribute
from shardtools.bench.spec import CacheState

NUM_REPLAYS = 300
CONTROLS = {"fed", "balanced", "inconclusive"}


def told(model: Model, cache: CacheState = "cold-data") -> Attribution:
    return attribute(model.spec(cache), model.run, Context(seed=model.seed), model.clock)


def verdicts(models: list[Model]) -> Counter[str]:
    return Counter(told(model).verdict for model in models)


@pytest.mark.parametrize("stage", [*STAGES, "transfer"])
def test_a_stage_that_dominates_is_named(stage: str) -> None:
    found = verdicts([planted(stage, seed) for seed in range(NUM_REPLAYS)])
    assert found[stage] >= 0.95 * NUM_REPLAYS, found
    assert set(found) <= {stage, "balanced", "inconclusive"}


@pytest.mark.parametrize("stage", [*STAGES, "transfer"])
def test_a_stage_that_dominates_is_named_behind_a_consumer_that_waits(stage: str) -> None:
    found = verdicts([planted(stage, seed, step=0.001, copy=0.0005) for seed in range(NUM_REPLAYS)])
    assert found[stage] >= 0.95 * NUM_REPLAYS, found
    assert set(found) <= {stage, "balanced", "inconclusive"}


def equal(seed: int, num_equal: int) -> Model:
    """So many stages cost the same, to a tenth; the others nothing."""
    chance = random.Random(seed)
    costs = dict.fromkeys(STAGES, 0.001)
    for name in chance.sample(("storage", "decode", "transform", "collate"), num_equal):
        costs[name] = chance.uniform(0.95, 1.05)
    return Model(costs, noise=chance.uniform(0.01, 0.05), cores=8.0, seed=seed, drift=chance.uniform(-0.01, 0.01))


@pytest.mark.parametrize("num_equal", [2, 3, 4])
def test_of_equal_stages_none_is_blamed(num_equal: int) -> None:
    found = verdicts([equal(seed, num_equal) for seed in range(NUM_REPLAYS)])
    assert set(found) <= CONTROLS, found


def test_a_fed_consumer_blames_nothing() -> None:
    models = [planted("decode", seed, step=10.0) for seed in range(NUM_REPLAYS)]
    found = [told(model) for model in models]
    assert {one.verdict for one in found} == {"fed"}
    assert {len(one.trials) for one in found} == {1}


def between(seed: int, low: float, high: float, **more: Any) -> Model:
    """A loader from ``low`` to ``high`` times as fast as its consumer."""
    chance = random.Random(seed)
    model = planted("decode", seed)
    loader = 1000 * min(model.num_workers / sum(model.costs.values()), 8.0 / sum(model.costs.values()))
    step = 1000 * chance.uniform(low, high) / loader
    return planted("decode", seed, step=step, **{name: step * value if name == "copy" else value for name, value in more.items()})


def test_a_copy_that_is_most_of_the_step_is_named() -> None:
    found = verdicts([between(seed, 2.5, 6.0, copy=0.6) for seed in range(NUM_REPLAYS)])
    assert found["h2d_copy"] >= 0.95 * NUM_REPLAYS, found


def test_a_loop_below_both_of_its_parts_is_contention() -> None:
    found = verdicts([between(seed, 2.5, 6.0, jitter=0.6) for seed in range(NUM_REPLAYS)])
    assert found["contention"] >= 0.95 * NUM_REPLAYS, found


def test_a_loop_that_is_nearly_fed_has_no_bottleneck() -> None:
    found = verdicts([between(seed, 2.5, 6.0, jitter=0.92) for seed in range(NUM_REPLAYS)])
    assert set(found) <= {"fed", "balanced"}, found


def test_most_verdicts_take_less_than_a_minute() -> None:
    counts = sorted(len(told(planted(stage, seed)).trials) for seed in range(50) for stage in STAGES)
    assert counts[int(0.9 * len(counts))] <= 15, counts
    assert max(counts) * 4.0 <= 100
    even = [Model(dict.fromkeys(STAGES, 1e-6), receive=0.02, num_workers=0, noise=0.01, seed=seed) for seed in range(9)]
    assert {len(told(model).trials) for model in even} == {7}


@pytest.mark.parametrize("seed", range(20))
def test_a_warm_cache_hides_storage_and_the_verdict_says_so(seed: int) -> None:
    found = told(planted("storage", seed), "warm")
    assert found.verdict != "storage"
    fact = found.fact("storage_hidden")
    assert fact is not None
    assert fact.values == {"reason": "warm"}
    assert all(trial.spec.intervention != "storage" for trial in found.trials)


@pytest.mark.parametrize("seed", range(20))
def test_a_delay_that_moves_from_decode_to_storage_moves_the_verdict(seed: int) -> None:
    costs = dict.fromkeys(STAGES, 0.05)
    found = [told(Model(costs | {stage: 0.5}, noise=0.03, seed=seed)) for stage in ("decode", "storage")]
    assert [one.verdict for one in found] == ["decode", "storage"]
    assert [one.stage for one in found] == ["decode", "storage"]


@pytest.mark.parametrize("stage", ["storage", "decode", "transform", "collate"])
def test_twice_the_dose_is_about_twice_the_attributed_cost(stage: str) -> None:
    for seed in range(20):
        costs = dict.fromkeys(STAGES, 0.05)
        once, twice = (told(Model(costs | {stage: dose}, noise=0.02, seed=seed)) for dose in (0.4, 0.8))
        of = [next(seconds_per_sample(one) for one in found.ablation if one.stage == stage) for found in (once, twice)]
        assert 1.5 <= of[1] / of[0] <= 2.5, (seed, of)
