"""Level 1: whether the loader is what the loop waits for. Here costs add up, and rates of whole loops tell."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
        copy = _copy(resident, consumer, results)
        is_pageable = bool(copy["leaves"]) and copy["pinned"] is not None and copy["pinned"] < copy["leaves"]
        return LevelOne("h2d_copy", "high" if is_pageable else "medium", (told, Fact("copy", copy)))
    if min(loader, consumer) * _BELOW > loop:
        values = {"F": loop, "bound": min(loader, consumer), **_jitter(timeline)}
        return LevelOne("contention", "medium", (told, Fact("contention", values)))
    return LevelOne("balanced", "medium", (told, Fact("marginal", {"au": loop / resident})))


def _copy(resident: float, copied: float, results: Sequence[TrialResult]) -> dict[str, Any]:
    pinning: dict[str, Any] = next((result.found["pinning"] for result in results if result.status == "ok"), {})
    leaves, pinned = pinning.get("num_tensors"), pinning.get("num_pinned")
    return {"H": copied, "G": resident, "exposed_share": 1 - copied / resident, "leaves": leaves, "pinned": pinned}


def _jitter(timeline: TrialResult | None) -> dict[str, float | None]:
    waits = (timeline.found.get("steps") or {}).get("data_wait_ms") if timeline is not None and timeline.status == "ok" else None
    return {"wait_p99_over_mean": waits["p99"] / waits["mean"] if waits and waits["mean"] else None}
