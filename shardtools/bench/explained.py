"""What limits a side, and which settings to use: asked after the blocks, with what they showed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from shardtools.bench import ceilings
from shardtools.bench.attribution import Attribution, Context, Fact, ablation_json, attribute, capped
from shardtools.bench.measured import Measured
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.report.situations import num_shards, situation_of
from shardtools.bench.report.verdict_words import in_words
from shardtools.bench.rounds import Rounds
from shardtools.bench.search.matrix import MatrixLimits, Searched, search
from shardtools.bench.spec import CacheState, Consumer, Settings, TrialSpec
from shardtools.bench.trial import TrialResult

_SEARCH_SECONDS = {"knee": 150.0, "grid": 600.0}
_WINDOW_SHARE = 0.25
"""Of ``min_seconds``: what a stage costs shows in ratios well above noise, and there are a dozen trials to run."""
_LEAST_WINDOW_SECONDS = 0.5
_LEAST_SECONDS = 30.0
_WINDOWS = 18
"""Times ``min_seconds``: longer windows need more time for as many repeats."""


def explained(measured: Measured, rounds: Rounds, machine: Mapping[str, Any], is_noisy: bool) -> Iterator[Measured]:
    """With the search and the verdicts that were asked for: again with each of them, as soon as it is there.

    ``machine``: the environment of the report. Raises what interrupts it; a trial that fails is a finding.
    """
    last, searched = len(rounds.layouts) - 1, None
    if rounds.request.search is not None:
        searched = _searched(rounds, machine)
        measured = replace(measured, matrix=searched.matrix, recommendation=searched.recommendation)
        yield measured
    asked = range({"none": 0, "first": 1, "all": last + 1}[rounds.request.attribute])
    for side in range(last + 1):
        cap = _cap(searched, machine) if searched is not None and side == last else None
        if side not in asked and cap is None:
            continue
        situation = situation_of(measured, side, machine, is_noisy)
        if searched is not None and side == last:
            situation = replace(situation, knee_workers=_knee_workers(searched), knee_rates=_knee_rates(searched, situation.settings))
        found = None
        if side in asked:
            found, probed = _attributed(rounds, side, is_noisy)
            ablation = [*measured.ablation, *(ablation_json(one, found.ablation, side) for one in found.ablation)]
            measured = replace(measured, ablation=ablation, ceilings=measured.ceilings or probed)
        found = found if cap is None else capped(found, cap, is_noisy)
        assert found is not None
        measured = replace(measured, verdicts=[*measured.verdicts, in_words(found, side, situation)])
        yield measured


def _attributed(rounds: Rounds, side: int, is_noisy: bool) -> tuple[Attribution, dict[str, Any]]:
    """With the ceilings of that side."""
    layout, request = rounds.layouts[side], rounds.request
    window_seconds = max(_LEAST_WINDOW_SECONDS, _WINDOW_SHARE * request.min_seconds)
    seconds = max(_LEAST_SECONDS, _WINDOWS * request.min_seconds)
    rounds.say(f"what limits {layout.uri} ({layout.name}): at most about {seconds:.0f} s of trials")
    trials = [trial for trial in rounds.trials if trial.side == side]
    throughputs = [trial.result for trial in trials if trial.block is not None]
    timeline = next((trial.result for trial in trials if trial.result.spec.mode == "timeline"), None)
    hidden = rounds.hides_storage(side)
    probed = _with_copies(ceilings.probe(layout, request.settings.num_workers), timeline, request.consumer)
    context = Context(throughputs, timeline, probed, request.plan.seed, seconds, window_seconds, hidden, is_noisy, rounds.say)

    def run(spec: TrialSpec, cache: CacheState) -> TrialResult:
        result, proof = rounds.run_spec(side, spec, cache)
        return replace(result, watched={**result.watched, "cache_label": proof["label"]})

    return attribute(rounds.spec(side), run, context), probed


def _with_copies(probed: dict[str, Any], timeline: TrialResult | None, consumer: Consumer) -> dict[str, Any]:
    """What copies to the device could reach, which its own process probed."""
    found = None if timeline is None else timeline.found.get("h2d_ceilings")
    names = ("pinned_GBps", "pageable_GBps")
    if found is not None:
        return probed | {f"h2d_{name}": found[name] for name in names}
    reason = "n/a (no accelerator)" if consumer.device == "cpu" else "no trial of this side with timers went well"
    missing = [{"metric": f"h2d_{name}", "reason": reason} for name in names]
    return probed | {f"h2d_{name}": None for name in names} | {"not_measured": [*probed.get("not_measured", []), *missing]}


def _knee_workers(searched: Searched) -> int | None:
    return None if searched.recommendation is None else int(searched.recommendation["params"]["num_workers"])


def _knee_rates(searched: Searched, current: Settings) -> tuple[float, float] | None:
    """Of the settings as they are, and of those to use; None where either has no rate."""
    if searched.recommendation is None:
        return None
    wanted = searched.recommendation["params"]
    rates = [_rate_of(searched.matrix["cells"], settings) for settings in (asdict(current), wanted)]
    return None if rates[0] is None or rates[1] is None else (rates[0], rates[1])


def _rate_of(cells: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> float | None:
    queued = ("prefetch_factor", "persistent_workers") if settings["num_workers"] else ()
    names = ("num_workers", "pin_memory", *queued)
    found = (cell["throughput"] for cell in cells if all(cell[name] == settings[name] for name in names))
    return next((rate for rate in found if rate), None)


def _cap(searched: Searched, machine: Mapping[str, Any]) -> Fact | None:
    """That shared memory ended the search, if it did."""
    found = searched.capped
    if found is None:
        return None
    cells = {name: getattr(found, name) for name in ("before", "at", "wanted")}
    settings = {name: {"num_workers": cell.num_workers, "prefetch_factor": cell.prefetch_factor} for name, cell in cells.items()}
    numbers = {name: getattr(found, name) for name in ("rate", "last_gain", "most_gain", "is_seen")}
    free_bytes = (machine.get("shm") or {}).get("free_bytes")
    return Fact("capped", {**settings, **numbers, "wanted_bytes": searched.wanted_shm_bytes, "free_bytes": free_bytes})


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
    latest = time.monotonic() + seconds

    def say(line: str) -> None:
        rounds.say(f"{line}; at most {max(0.0, latest - time.monotonic()):.0f} s to go")

    return search(rounds.spec(side), prepare, kind, limits, say, seconds)
