"""A case as attribution sees it: trials begun with a page cache that is proved, and the verdict as plain data."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shardtools.bench.attribution import Attribution, Context, attribute
from shardtools.bench.page_cache import PageCache
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.readers import settle_workload
from shardtools.bench.report.verdict_words import Situation, in_words
from shardtools.bench.spec import CacheState, TrialSpec
from shardtools.bench.trial import TrialResult, run_trial

_WINDOW_SECONDS = 0.6
"""Of each trial: faults are large, and what runs cold has one pass over few files."""
_TIMEOUT_SECONDS = 28.0
"""Of a trial, so that none takes half a minute even where its loader hangs."""
_LONGEST_SECONDS = 240.0
"""After which no repeat is begun. Quiet cores need a third of it; on busy ones trials take longer, and there are more of them."""


def judged(spec: TrialSpec, say: Callable[[str], None], seed: int = 0) -> dict[str, Any]:
    """``{class, confidence, ratio, ci, sentence, evidence}`` of one side at one setting."""
    spec = replace(spec, workload=settle_workload([spec.layout], spec.workload), timeout_seconds=_TIMEOUT_SECONDS)
    context = Context(seed=seed, seconds=_LONGEST_SECONDS, window_seconds=_WINDOW_SECONDS, say=say)
    return _as_json(attribute(spec, trials_over(spec), context), spec)


def trials_over(spec: TrialSpec) -> Callable[[TrialSpec, CacheState], TrialResult]:
    """Runs trials over the same data, each begun with the page cache that is asked for, and labels them with what it really was."""
    side = cache_state.Side(PageCache.of(spec.layout.uri), spec.layout.kind)

    def run(asked: TrialSpec, cache: CacheState) -> TrialResult:
        proof: list[cache_state.CacheProof] = []
        result = run_trial(replace(asked, cache=cache), lambda: proof.append(cache_state.prepare(cache, side, (), allows_drop=False)))
        if proof:
            result.watched["cache_label"] = proof[0].label
        return result

    return run


def _as_json(found: Attribution, spec: TrialSpec) -> dict[str, Any]:
    """The ratio is that of the loader without the stage to the loader as it is, whatever would bind next."""
    situation = Situation("the loader", spec.layout, spec.workload, spec.settings, spec.consumer, machine={})
    told = in_words(found, 0, situation)
    blamed = next((one for one in found.ablation if one.stage == found.stage), None)
    return {
        "class": found.verdict,
        "confidence": found.confidence,
        "ratio": None if blamed is None else blamed.ratio,
        "ci": None if blamed is None or blamed.ci is None else list(blamed.ci),
        "sentence": told["sentence_en"],
        "evidence": [line["en"] for line in told["evidence"]],
    }
