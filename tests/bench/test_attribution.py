"""The single steps of attribution: stops a crash that is called a slow stage, a verdict without repeats, evidence that lacks a value,
and a cause that counters contradict being told with high confidence."""

from dataclasses import replace
from typing import Any

import pytest
from attribution_model import STAGES, Model

from shardtools.bench.attribution import FACTS, Ablation, Attribution, Context, Fact, ablation_json, attribute, may_be_sure
from shardtools.bench.attribution._evidence import corroborate
from shardtools.bench.attribution._rule import Decision, decide
from shardtools.bench.attribution._sure import scattered
from shardtools.bench.attribution._timers import Timed, reader_of
from shardtools.bench.spec import CacheState, Intervention, TrialSpec
from shardtools.bench.trial import TrialResult


def of(model: Model, context: Context | None = None, cache: CacheState = "cold-data") -> Attribution:
    return attribute(model.spec(cache), model.run, context or Context(), model.clock)


def costs(**more: float) -> dict[str, float]:
    return dict.fromkeys(STAGES, 0.05) | more


def ablation(stage: Intervention, *ratios: float, baseline: float = 100.0) -> Ablation:
    """Baselines differ a little, as those of real trials do."""
    return Ablation(stage, tuple((baseline * (1 + 0.001 * i), baseline * (1 + 0.001 * i) * ratio) for i, ratio in enumerate(ratios)))


def test_an_ablation_tells_its_median_and_interval() -> None:
    one = Ablation("decode", ((100.0, 200.0), (100.0, 400.0), (50.0, 150.0)))
    assert (one.n, one.ratio) == (3, pytest.approx(3.0))
    assert one.ci is not None
    assert one.ci[0] < 2.88 < one.ci[1]  # the mean of the logs: the cube root of 24
    assert ablation_json(one, [one], 1) == {
        "side": 1,
        "stage": "decode",
        "ratio": pytest.approx(3.0),
        "ci": [pytest.approx(one.ci[0]), pytest.approx(one.ci[1])],
        "ci_by": "repeats",
        "n": 3,
        "rates": [[100.0, 200.0], [100.0, 400.0], [50.0, 150.0]],
    }
    single = Ablation("decode", ((100.0, 200.0),))
    assert (ablation_json(single, [single], 0)["ci"], ablation_json(single, [single], 0)["ci_by"]) == (None, None)


BUSY = [
    Ablation("transform", ((212.6, 595.8),)),
    Ablation("decode", ((212.6, 1045.1),)),
    Ablation("storage", ((293.2, 343.8),)),
    Ablation("transfer", ((293.2, 881.1),)),
    Ablation("collate", ((381.1, 385.2),)),
]
"""One round on a host that other programs filled."""


def test_the_interval_of_one_repeat_is_in_the_report_and_says_what_it_was_taken_from() -> None:
    """As the rule has it: else a sentence has an interval and the figure beside it none."""
    told = ablation_json(BUSY[1], BUSY, 0)
    assert told["ci_by"] == "baselines"
    assert told["ci"] == [pytest.approx(0.83, abs=0.01), pytest.approx(29.1, abs=0.1)]


@pytest.mark.parametrize(
    ("stage", "shares", "is_scattered"),
    [("decode", {"decode": 0.06}, True), ("decode", {"decode": 0.75}, False), ("decode", None, False), ("storage", {"storage": 0.7}, True)],
)
def test_a_stage_whose_time_cannot_explain_the_gain_is_not_suspected(
    stage: str, shares: dict[str, float] | None, is_scattered: bool
) -> None:
    """Nor one whose gain is less than what baselines differ by."""
    first = next(one for one in BUSY if one.stage == stage)
    timed = None if shares is None else Timed(shares, dict.fromkeys(shares, 0.0), None)
    fact = scattered(first, BUSY, timed)
    assert (fact is not None) == is_scattered
    if fact is not None:
        assert (fact.values["slowest"], fact.values["fastest"]) == (212.6, 381.1)


def test_high_confidence_needs_two_pairs_and_a_quiet_host() -> None:
    """With quiet baselines one repeat may decide which stage it is, but not how sure that is."""
    sure = of(Model(costs(decode=0.5), noise=0.01))
    noisy = of(Model(costs(decode=0.5), noise=0.01), Context(is_noisy=True))
    once = of(Model(costs(decode=0.5), noise=0.01), Context(seconds=40.0))
    assert [(found.verdict, found.confidence) for found in (sure, noisy, once)] == [
        ("decode", "high"),
        ("decode", "medium"),
        ("decode", "medium"),
    ]
    assert max(one.n for one in once.ablation) == 1
    assert [may_be_sure(1, False), may_be_sure(2, False), may_be_sure(8, True)] == [False, True, False]


DECISIONS = {
    "the first round is repeated": ([("decode", (3.0,)), ("storage", (1.1,))], "more", ("decode",)),
    "those within reach are repeated with it": (
        [("decode", (2.0,)), ("storage", (1.6,)), ("collate", (1.1,))],
        "more",
        ("decode", "storage"),
    ),
    "nothing gains anything": ([("decode", (1.04,)), ("storage", (1.02,))], "no_stage", ("decode",)),
    "a clear gain": ([("decode", (3.0, 3.1, 2.9)), ("storage", (1.1,))], "stage", ("decode",)),
    "a small one that is sure": ([("decode", (1.2, 1.21, 1.19)), ("storage", (1.0, 1.01, 1.0))], "stage", ("decode",)),
    "below the least": ([("decode", (1.12, 1.13, 1.12)), ("storage", (1.0, 1.01, 1.0))], "no_stage", ("decode",)),
    "two that are equal": ([("decode", (2.0, 2.02, 1.98)), ("storage", (1.9, 1.92, 1.91))], "co_bottleneck", ("decode", "storage")),
    "a gain that is not sure": ([("decode", (2.0, 1.1, 0.8)), ("storage", (1.0,))], "more", ("decode", "storage")),
    "a lead that is not sure": ([("decode", (2.0, 3.5, 2.6)), ("storage", (2.2, 2.0, 2.2))], "more", ("decode", "storage")),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_the_rule(case: str) -> None:
    found, kind, stages = DECISIONS[case]
    decision = decide([ablation(stage, *ratios) for stage, ratios in found])  # type: ignore[arg-type]
    assert (decision.kind, decision.stages) == (kind, stages)


def test_what_stays_open_is_not_told() -> None:
    wild = ablation("decode", 2.0, 1.1, 0.8, 2.2, 0.7, 1.9, 0.9, 2.0)
    assert decide([wild, ablation("storage", 1.0)]).kind == "unsure"
    assert decide([ablation("decode", 2.0), ablation("storage", 1.0)], is_last=True).kind == "unsure"


def test_when_time_is_up_the_noise_of_baselines_stands_for_repeats() -> None:
    """One repeat each: a gain of 10 is sure where baselines lie within 5 %, and is not where they differ by a factor of four."""

    def screened(*baselines: float) -> list[Ablation]:
        names: list[Intervention] = ["decode", "transform", "collate"]
        return [Ablation(name, ((rate, rate * gain),)) for name, rate, gain in zip(names, baselines, (10.0, 1.1, 1.0), strict=True)]

    assert decide(screened(100.0, 103.0, 98.0), is_last=True) == Decision("stage", ("decode",))
    assert decide(screened(100.0, 400.0, 110.0), is_last=True).kind == "unsure"
    assert decide(screened(100.0, 100.0, 100.0)[:2], is_last=True).kind == "unsure"  # one baseline, no noise known


@pytest.mark.parametrize(("implied", "kind"), [(1.2, "stage"), (2.0, "co_bottleneck"), (2.1, "co_bottleneck"), (3.0, "reader")])
def test_parsing_competes_by_what_its_timer_implies(implied: float, kind: str) -> None:
    assert decide([ablation("decode", 2.0, 2.01, 1.99)], implied).kind == kind


def test_parsing_that_costs_as_much_as_decoding_is_told_with_its_numbers() -> None:
    found = of(Model(costs(parse=0.5, decode=0.5), noise=0.001))
    assert found.verdict == "balanced"
    equal = found.fact("co_bottleneck")
    assert equal is not None
    assert equal.values["stages"] == ["decode", "parse"]
    assert equal.values["ratios"] == [pytest.approx(1.15 / 0.66, rel=0.02), pytest.approx(1.15 / 0.65, rel=0.02)]
    assert found.fact("reader") is not None


def test_reading_that_a_warm_cache_takes_away_is_storage_and_the_rest_is_not() -> None:
    timed = Timed({"storage": 0.5, "parse": 0.2}, {"storage": 0.4, "parse": 0.0}, None)
    cold = reader_of(timed, 2.0)  # half of the time went
    assert cold is not None
    assert (cold.share, cold.ratio) == (pytest.approx(0.2), pytest.approx(1.25))
    assert not cold.is_waiting
    warm = reader_of(timed, None)
    assert warm is not None
    assert (warm.share, warm.ratio) == (pytest.approx(0.7), pytest.approx(1 / 0.3))
    assert warm.blocked_share == pytest.approx(0.4 / 0.7)
    assert warm.is_waiting


def test_waits_while_parsing_are_storage_and_with_a_warm_cache_unknown() -> None:
    waiting = Model(costs(parse=0.5), waits=frozenset({"parse", "storage"}))
    assert of(waiting).verdict == "storage"
    assert of(waiting, cache="warm").verdict == "inconclusive"
    assert of(Model(costs(parse=0.5))).verdict == "parse"


ENDS = [
    ("oom_shm", None, "shared_memory", "high"),
    ("fd", None, "fd_limit", "high"),
    ("refused", "shm", "shared_memory", "medium"),
    ("refused", "fds", "fd_limit", "medium"),
    ("refused", "RAM", "inconclusive", "inconclusive"),
    ("refused", None, "inconclusive", "inconclusive"),
    ("hang", None, "inconclusive", "inconclusive"),
    ("error", None, "inconclusive", "inconclusive"),
]


@pytest.mark.parametrize(("status", "exceeds", "verdict", "confidence"), ENDS)
@pytest.mark.parametrize("step", [None, 1.0])
def test_trials_that_crash_are_told_at_once(status: Any, exceeds: str | None, verdict: str, confidence: str, step: float | None) -> None:
    """By what a refusal names, not by its words, which are for people."""

    def ended(spec: TrialSpec) -> TrialResult:
        return TrialResult(spec, status, message, {} if exceeds is None else {"exceeds": exceeds})

    def run(spec: TrialSpec, _: CacheState) -> TrialResult:
        ran.append(spec)
        return ended(spec)

    message = "shm, descriptors, shared memory: any words"
    ran: list[TrialSpec] = []
    found = attribute(Model(step=step).spec(), run)
    assert (found.verdict, found.confidence, found.gain) == (verdict, confidence, None)
    assert found.facts[0] == Fact("status", {"status": status, "message": message})
    assert len(ran) <= 3
    given = attribute(Model(step=step).spec(), run, Context(measured=[ended(ran[0])]))
    assert (given.verdict, given.trials) == (verdict, ())


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [("ok", "oom_shm", "shared_memory"), ("error", "fd", "fd_limit"), ("ok", "error", "fed"), ("error", "hang", "inconclusive")],
)
def test_one_trial_of_several_that_ran_out_decides(first: Any, second: Any, verdict: str) -> None:
    model = Model(step=10.0)
    measured = [replace(model.run(model.spec(), "cold-data"), status=first), TrialResult(model.spec(), second, "it ended")]
    assert of(model, Context(measured=measured)).verdict == verdict


def test_a_fed_consumer_with_a_warm_cache_says_that_storage_was_hidden() -> None:
    found = of(Model(costs(storage=0.5), step=10.0), cache="warm")
    assert (found.verdict, found.fact("storage_hidden")) == ("fed", Fact("storage_hidden", {"reason": "warm"}))


@pytest.mark.parametrize(("device", "drained"), [("sim", "cpu"), ("cpu", "cpu"), ("cuda", "cuda")])
def test_what_pins_batches_for_a_real_device_is_part_of_the_loader(device: Any, drained: str) -> None:
    model = Model(costs(decode=0.5), step=0.001)
    base = replace(model.spec(), consumer=replace(model.spec().consumer, device=device))
    trials = attribute(base, model.run).trials
    assert {trial.spec.consumer.device for trial in trials[1:]} == {drained}


def test_an_intervention_that_fails_is_left_out_and_told() -> None:
    model = Model(costs(decode=0.5))

    def run(spec: TrialSpec, cache: CacheState) -> TrialResult:
        return TrialResult(spec, "error", "it broke") if spec.intervention == "transfer" else model.run(spec, cache)

    found = attribute(model.spec(), run)
    assert found.verdict == "decode"
    assert found.fact("failed") == Fact("failed", {"stage": "transfer", "status": "error", "message": "it broke"})


def test_one_baseline_that_fails_is_run_again() -> None:
    model, failures = Model(costs(decode=0.5)), [True]

    def run(spec: TrialSpec, cache: CacheState) -> TrialResult:
        is_baseline = spec.intervention is None and spec.mode == "throughput"
        return TrialResult(spec, "error", "once") if is_baseline and failures and failures.pop() else model.run(spec, cache)

    assert attribute(model.spec(), run).verdict == "decode"


def test_what_was_measured_is_not_measured_again() -> None:
    model = Model(costs(decode=0.5), step=0.001)
    measured = [model.run(model.spec(), "cold-data") for _ in range(3)]
    timeline = model.run(replace(model.spec(), mode="timeline"), "cold-data")
    found = of(model, Context(measured=measured, timeline=timeline))
    assert found.verdict == "decode"
    assert all(trial.spec.consumer.kind == "none" and trial.spec.mode == "throughput" for trial in found.trials)
    assert found.rates["F"] == sorted(one.found["rates"]["F"] for one in measured)[1]


def test_without_a_consumer_level_one_is_left_out() -> None:
    found = of(Model(costs(decode=0.5)))
    assert found.rates == {"F": None, "G": None, "H": None, "L": pytest.approx(2857, rel=0.2)}  # 2 workers, 0.7 ms a sample
    assert not any(fact.kind in ("au", "rates", "loader_bound") for fact in found.facts)


def test_trials_are_short_and_differ_in_one_thing_alone() -> None:
    model = Model(costs(decode=0.5), num_workers=2)
    base = replace(model.spec(), plant="x:plant", timeout_seconds=33.0)
    found = attribute(base, model.run, Context(window_seconds=0.7))
    drain = found.trials[0].spec
    assert (drain.min_seconds, drain.max_seconds, drain.consumer.kind, drain.plant, drain.timeout_seconds) == (
        0.7,
        pytest.approx(1.12),
        "none",
        "x:plant",
        33.0,
    )
    for trial in found.trials:
        same = replace(trial.spec, intervention=None, mode="timeline", cache="cold-data")
        assert same == replace(drain, mode="timeline")
    assert {trial.spec.cache for trial in found.trials if trial.spec.intervention == "storage"} == {"warm"}


def test_each_repeat_lies_beside_a_baseline_and_the_order_is_the_seeds() -> None:
    def order(seed: int) -> list[str | None]:
        trials = of(Model(costs(decode=0.5)), Context(seed=seed)).trials
        return [trial.spec.intervention for trial in trials if trial.spec.mode == "throughput"]

    assert order(1) == order(1)
    assert len({order(seed)[0] for seed in range(20)} - {None}) >= 4
    for seed in range(8):
        found = order(seed)
        for place, stage in enumerate(found):
            assert stage is None or None in found[max(0, place - 1) : place + 2]


def test_no_repeat_is_begun_when_time_is_up() -> None:
    found = of(Model(costs(decode=0.5), noise=0.01), Context(seconds=40.0))
    assert found.fact("budget") == Fact("budget", {"seconds": 40.0, "spent": 36.0, "rounds": 1})
    assert found.verdict == "decode"  # quiet baselines: sure after one repeat
    assert len(found.trials) == 9


def test_where_baselines_differ_more_than_a_gain_no_stage_is_suspected() -> None:
    """On a busy host, of what is left open when time is up."""
    found = [of(Model(costs(decode=0.15), noise=0.8, seed=seed), Context(seconds=40.0, seed=seed)) for seed in range(12)]
    left_open = [one for one in found if one.verdict == "inconclusive"]
    assert {fact.kind for one in left_open for fact in one.facts} >= {"scattered"}
    for one in left_open:
        unsure, baselines = one.fact("unsure"), [rate for part in one.ablation for rate, _ in part.rates]
        assert (unsure is None) == (one.fact("scattered") is not None)
        assert unsure is None or unsure.values["ratio"] >= max(baselines) / min(baselines)


def test_stages_that_are_not_there_are_not_taken_away() -> None:
    model = Model(costs(decode=0.5), num_workers=0)
    base = replace(model.spec(), workload=replace(model.spec().workload, decode="none", transform=None))
    found = attribute(base, model.run)
    assert {trial.spec.intervention for trial in found.trials} == {None, "storage", "decode", "collate"}


@pytest.mark.parametrize("label", ["warm", "cold-data"])
def test_files_that_cannot_be_cold_hide_storage(label: str) -> None:
    model = Model(costs(storage=0.5))

    def run(spec: TrialSpec, cache: CacheState) -> TrialResult:
        result = model.run(spec, cache)
        result.watched["cache_label"] = cache if cache == "warm" else label
        return result

    found = attribute(model.spec(), run)
    assert (found.fact("storage_hidden") == Fact("storage_hidden", {"reason": "in_memory"})) == (label == "warm")
    assert (found.verdict == "storage") == (label == "cold-data")


def test_a_warm_cache_that_was_not_reached_judges_nothing() -> None:
    model = Model(costs(storage=0.5))

    def run(spec: TrialSpec, cache: CacheState) -> TrialResult:
        result = model.run(spec, cache)
        result.watched["cache_label"] = "mixed"
        return result

    found = attribute(model.spec(), run)
    assert "storage" not in [one.stage for one in found.ablation]
    fact = found.fact("failed")
    assert fact is not None
    assert (fact.values["stage"], fact.values["status"]) == ("storage", "mixed")


def test_the_gain_ends_where_the_consumer_binds() -> None:
    """The loader gives 1,429 samples/s, and 5,000 without decoding; the consumer takes 2,000 with its copy."""
    quiet: dict[str, Any] = {"noise": 1e-6, "num_workers": 1, "receive": 1e-3}
    found = of(Model(costs(decode=0.5), step=0.4, copy=0.1, **quiet))
    assert found.gain is not None
    assert found.gain.ratio == pytest.approx(2000 / 1429, rel=0.01)
    assert found.gain.then == "h2d_copy"
    fed = of(Model(costs(decode=0.5), step=0.5, **quiet))
    assert fed.gain is not None
    assert fed.gain.then == "fed"
    copied = of(Model(costs(), step=0.5, copy=0.5, **quiet))
    assert (copied.verdict, copied.gain and copied.gain.then) == ("h2d_copy", "fed")
    assert copied.gain is not None
    assert copied.gain.ratio == pytest.approx(2.0, rel=0.01)  # 1,000 samples/s with the copy, 2,000 without
    jittery = of(Model(costs(), step=0.5, copy=0.04, jitter=0.5, **quiet))
    assert (jittery.verdict, jittery.gain and jittery.gain.then) == ("contention", None)
    assert jittery.gain is not None
    assert jittery.gain.ratio == pytest.approx(2.0, rel=0.01)
    alone = of(Model(costs(decode=0.5, transform=0.2), **quiet))
    assert alone.gain is not None
    assert alone.gain.ratio == pytest.approx(0.85 / 0.36, rel=0.01)
    assert alone.gain.then == "transform"


CORROBORATED = [
    ("storage", {"disk_read_MBps": 80.0, "disk_iops": 10.0}, True),
    ("storage", {"disk_read_MBps": 10.0, "disk_iops": 900.0}, True),
    ("storage", {"disk_read_MBps": 10.0, "disk_iops": 10.0}, False),
    ("storage", {"psi_io_share": 0.6}, True),
    ("decode", {"cpu_util": 1.9, "cpu_util_share": 0.2}, True),
    ("decode", {"cpu_util": 0.9, "cpu_util_share": 0.95}, True),
    ("decode", {"cpu_util": 0.9, "cpu_util_share": 0.2}, False),
    ("collate", {"cpu_util": 0.1, "cpu_util_share": 0.1, "cpu_throttled_share": 0.4}, True),
]


@pytest.mark.parametrize(("stage", "counters", "agrees"), CORROBORATED)
def test_counters_agree_or_do_not(stage: str, counters: dict[str, float], agrees: bool) -> None:
    model = Model(num_workers=2)
    baseline = replace(model.run(model.spec(), "cold-data"), watched={"counters": counters})
    told = corroborate(stage, baseline, None, {"disk_MBps": 100.0, "disk_iops": 1000.0})
    assert any(supports for _, supports in told) == agrees


@pytest.mark.parametrize(
    ("timed", "agrees"), [(Timed({"decode": 0.3}, {"decode": 0.0}, 0.1), True), (Timed({"decode": 0.95}, {"decode": 0.0}, 0.1), False)]
)
def test_idle_workers_agree_that_sending_is_the_limit(timed: Timed, agrees: bool) -> None:
    assert any(supports for _, supports in corroborate("transfer", None, timed, None)) == agrees


def test_the_timer_of_a_stage_says_how_much_of_it_was_waiting() -> None:
    told = corroborate("storage", None, Timed({"storage": 0.5}, {"storage": 0.4}, None), None)
    assert told[0] == (Fact("timer", {"stage": "storage", "share": 0.5, "blocked_share": 0.8}), False)
    assert told[1] == (Fact("blocked", {"share": 0.4}), False)


def test_every_fact_is_described_with_its_values() -> None:
    """Of all cases of this file's model: the names FACTS gives are those the facts have."""
    cases = [of(Model(costs(**{stage: 0.5}), step=step)) for stage in STAGES for step in (None, 0.001, 10.0)]
    cases += [of(Model(costs(decode=0.5), step=1.0, copy=1.0)), of(Model(costs(decode=0.5), step=1.0, jitter=0.6))]
    cases += [of(Model(costs(decode=0.5, storage=0.5))), of(Model(costs(), receive=2.0)), of(Model(costs(), step=1.0, jitter=0.92))]
    seen = set()
    for found in cases:
        for fact in found.facts:
            seen.add(fact.kind)
            described = FACTS[fact.kind]
            assert all(name in described for name in fact.values), fact
    assert len(seen) >= 15, seen
