"""What limits a side, and which settings to use: asked after the blocks, with what they showed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardtools.bench import ceilings
from shardtools.bench.attribution import Context, attribute
from shardtools.bench.measured import Measured
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.report.situations import num_shards, situation_of
from shardtools.bench.report.verdict_words import Situation, in_words
from shardtools.bench.rounds import Rounds
from shardtools.bench.search.matrix import MatrixLimits, Searched, search
from shardtools.bench.spec import CacheState, TrialSpec
from shardtools.bench.trial import TrialResult

_SEARCH_SECONDS = {"knee": 150.0, "grid": 600.0}
_WINDOW_SHARE = 0.25
"""Of ``min_seconds``: what a stage costs shows in ratios well above noise, and there are a dozen trials to run."""
_LEAST_WINDOW_SECONDS = 0.5
_LEAST_SECONDS = 30.0
_WINDOWS = 18
"""Times ``min_seconds``: longer windows need more time for as many repeats."""


def explain(measured: Measured, rounds: Rounds, machine: Mapping[str, Any], is_noisy: bool) -> Measured:
    """With the verdicts and the search that were asked for. ``machine``: the environment of the report.

    Raises what interrupts it; a trial that fails is a finding.
    """
    knee_workers = None
    if rounds.request.search is not None:
        searched = _searched(rounds, machine)
        measured = replace(measured, matrix=searched.matrix, recommendation=searched.recommendation)
        knee_workers = searched.recommendation["params"]["num_workers"] if searched.recommendation else None
    for side in range({"none": 0, "first": 1, "all": len(rounds.layouts)}[rounds.request.attribute]):
        is_searched = side == len(rounds.layouts) - 1
        situation = situation_of(measured, side, machine, is_noisy, knee_workers if is_searched else None)
        measured = _attributed(measured, rounds, side, situation)
    return measured


def _attributed(measured: Measured, rounds: Rounds, side: int, situation: Situation) -> Measured:
    layout, request = rounds.layouts[side], rounds.request
    window_seconds = max(_LEAST_WINDOW_SECONDS, _WINDOW_SHARE * request.min_seconds)
    seconds = max(_LEAST_SECONDS, _WINDOWS * request.min_seconds)
    rounds.say(f"what limits {layout.uri} ({layout.name}): at most about {seconds:.0f} s of trials")
    probed = ceilings.probe(layout, request.settings.num_workers)
    trials = [trial for trial in rounds.trials if trial.side == side]
    throughputs = [trial.result for trial in trials if trial.block is not None]
    timeline = next((trial.result for trial in trials if trial.result.spec.mode == "timeline"), None)
    context = Context(throughputs, timeline, probed, request.plan.seed, seconds, window_seconds, rounds.say)

    def run(spec: TrialSpec, cache: CacheState) -> TrialResult:
        result, proof = rounds.run_spec(side, spec, cache)
        return replace(result, watched={**result.watched, "cache_label": proof["label"]})

    found = attribute(rounds.spec(side), run, context)
    ablation = [one.as_json(side) for one in found.ablation]
    return replace(
        measured,
        ablation=[*measured.ablation, *ablation],
        verdicts=[*measured.verdicts, in_words(found, side, situation)],
        ceilings=measured.ceilings or probed,
    )


def _searched(rounds: Rounds, machine: Mapping[str, Any]) -> Searched:
    """Of the side named last."""
    request, side = rounds.request, len(rounds.layouts) - 1
    layout, kind = rounds.layouts[side], request.search or "knee"
    seconds = request.search_seconds or _SEARCH_SECONDS[kind]
    rounds.say(f"searching settings for {layout.uri} ({layout.name}): at most {seconds:.0f} s of trials")

    def prepare() -> dict[str, Any]:
        return cache_state.prepare(request.cache, rounds.sides[side], (), request.allow_drop_caches).as_json()

    limits = MatrixLimits(
        cpus_effective=max(1, int(machine.get("cpus_effective") or rounds.num_cpus or 1)),
        num_shards=num_shards(layout),
        num_samples=rounds.counts[side],
        seed=request.plan.seed,
    )
    return search(rounds.spec(side), prepare, kind, limits, rounds.say, seconds)
