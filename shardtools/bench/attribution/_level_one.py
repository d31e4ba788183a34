"""Level 1: whether the loader is what the loop waits for. Here costs add up, and rates of whole loops tell."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from shardtools.bench.attribution._loop_evidence import contention_evidence, copy_evidence
from shardtools.bench.attribution.result import Confidence, Fact, VerdictClass
from shardtools.bench.spec import FED_AU
from shardtools.bench.trial import TrialResult

_COPY_SHARE = 0.90
_CAPACITY = 1.10
"""A loader so much faster than what takes its batches is not the limit."""
_BELOW = 0.90
_FED_WAIT = 0.05


@dataclass(frozen=True)
class LevelOne:
    """``verdict`` None: the loader is the limit, and level 2 is asked."""

    verdict: VerdictClass | None
    confidence: Confidence
    facts: tuple[Fact, ...]


def rates_of(results: Sequence[TrialResult]) -> dict[str, float | None]:
    """F, G and H: medians over trials with a consumer that ended well."""
    rates: dict[str, float | None] = {}
    for name in ("F", "G", "H"):
        values = [result.found["rates"][name] for result in results if result.status == "ok"]
        values = [value for value in values if value is not None]
        rates[name] = statistics.median(values) if values else None
    return rates | {"L": None}


def is_fed(rates: dict[str, float | None]) -> bool:
    """Then the loader's own rate need not be measured."""
    return rates["F"] is not None and rates["G"] is not None and rates["F"] >= FED_AU * rates["G"]


def level_one(rates: dict[str, float | None], results: Sequence[TrialResult], timeline: TrialResult | None) -> LevelOne:
    """``results``: the trials with a consumer. F and G are there; L is, too, unless the consumer is fed."""
    loop, resident, loader = rates["F"], rates["G"], rates["L"]
    assert loop is not None
    assert resident is not None
    if is_fed(rates):
        wait = (timeline.found.get("shares") or {}).get("wait") if timeline is not None and timeline.status == "ok" else None
        facts = (Fact("au", {"au": loop / resident, "F": loop, "G": resident}),)
        return LevelOne("fed", "high" if wait is not None and wait < _FED_WAIT else "medium", facts)
    assert loader is not None
    consumer = rates["H"] if rates["H"] is not None else resident
    told = Fact("rates", {**rates, "is_with_consumer": True})
    if loader < _CAPACITY * consumer:
        return LevelOne(None, "inconclusive", (told, Fact("loader_bound", {"L": loader, "H": consumer})))
    if consumer < _COPY_SHARE * resident:
        copy, agrees = copy_evidence((resident, consumer), results, timeline)
        return LevelOne("h2d_copy", "high" if agrees else "medium", (told, copy))
    if min(loader, consumer) * _BELOW > loop:
        evidence = contention_evidence((loop, min(loader, consumer)), results, timeline)
        confidence: Confidence = "high" if any(agrees for _, agrees in evidence) else "medium"
        return LevelOne("contention", confidence, (told, *(fact for fact, _ in evidence)))
    return LevelOne("balanced", "medium", (told, Fact("marginal", {"au": loop / resident})))
