"""What attribution is given of what was asked and measured; stops advice to measure longer that lengthens nothing."""

from typing import Any

import pytest
from verdict_cases import CAPPED as CAPPED_AT

from shardtools.bench import ceilings, explained
from shardtools.bench.attribution import Attribution, Context, Fact
from shardtools.bench.blocks import BlockPlan
from shardtools.bench.measured import Measured, Trial
from shardtools.bench.report.situations import situation_of
from shardtools.bench.request import BenchRequest
from shardtools.bench.rounds import Rounds
from shardtools.bench.search import Cell
from shardtools.bench.search.capped import Capped
from shardtools.bench.search.matrix import Searched
from shardtools.bench.spec import Consumer, Layout, Settings, TrialSpec, Workload
from shardtools.bench.trial import TrialResult

FILES, SHARDS = Layout("photos/", "files", "torch"), Layout("shards/", "wds", "webdataset")
CAPPED = Capped(Cell(2), Cell(4), Cell(8), 400.0, 2.0, 2.0, is_seen=False)
"""A search of the side named last that shared memory ended."""
BATCH = {"bytes": 1000, "tensors": 1, "shm_bytes": 4096, "samples": 10}


def result(layout: Layout, mode: Any = "throughput") -> TrialResult:
    found = {"throughput": 100.0, "batch": BATCH, "h2d_ceilings": {"pinned_GBps": 20.0, "pageable_GBps": 4.0}}
    return TrialResult(TrialSpec(layout, Workload(), mode=mode), "ok", "", found)


TRIALS = [Trial(0, 0, 0, {}, result(FILES)), Trial(1, 0, 1, {}, result(SHARDS)), Trial(0, None, 0, {}, result(FILES, "timeline"))]


def contexts(
    request: BenchRequest, monkeypatch: pytest.MonkeyPatch, is_noisy: bool = False
) -> tuple[list[tuple[TrialSpec, Context]], Measured]:
    """What ``attribute`` was called with, and what came of it."""
    asked: list[tuple[TrialSpec, Context]] = []

    def attribute(base: TrialSpec, _run: Any, context: Context) -> Attribution:
        asked.append((base, context))
        return Attribution("inconclusive", None, "inconclusive", dict.fromkeys("FGHL"), (), None, (), (), 1.0)

    def search(*_: Any) -> Searched:
        return Searched({"cells": []}, {"params": {"num_workers": 4}}, [], CAPPED, 100 << 20)

    monkeypatch.setattr(explained, "search", search)
    monkeypatch.setattr(explained, "attribute", attribute)
    monkeypatch.setattr(ceilings, "probe", lambda layout, _: {"of": layout.uri})
    layouts = [FILES, SHARDS]
    rounds = Rounds(request, layouts, Workload(), lambda _: None, [], [None, None], trials=TRIALS)
    measured = Measured(request, layouts, Workload(), TRIALS, [])
    machine = {"shm": {"free_bytes": 64 << 20}}
    return asked, [measured, *explained.explained(measured, rounds, machine, is_noisy=is_noisy)][-1]


def asked_for(**others: Any) -> BenchRequest:
    return BenchRequest(("photos/", "shards/"), plan=BlockPlan.fixed(2, seed=7), **others)


@pytest.mark.parametrize(
    ("min_seconds", "window_seconds", "seconds"), [(5.0, 1.25, 90.0), (10.0, 2.5, 180.0), (2.5, 0.625, 45.0), (0.2, 0.5, 30.0)]
)
def test_longer_windows_are_longer_in_attribution_too(
    min_seconds: float, window_seconds: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((base, context),), measured = contexts(asked_for(min_seconds=min_seconds), monkeypatch)
    assert (context.window_seconds, context.seconds, context.seed) == (window_seconds, seconds, 7)
    assert base.layout == FILES
    (remedy,) = measured.verdicts[0]["remedies"]
    assert remedy["options"] == f"--min-seconds {max(5.0, 2 * min_seconds):g}"


def test_each_side_is_given_its_own_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, measured = contexts(asked_for(attribute="all"), monkeypatch)
    assert [base.layout for base, _ in asked] == [FILES, SHARDS]
    assert [[one.spec.layout for one in context.measured] for _, context in asked] == [[FILES], [SHARDS]]
    assert [context.timeline is TRIALS[2].result for _, context in asked] == [True, False]
    first, second = (context.ceilings or {} for _, context in asked)
    assert (first["of"], first["h2d_pinned_GBps"], first["h2d_pageable_GBps"]) == ("photos/", 20.0, 4.0)
    assert (second["of"], second["h2d_pinned_GBps"]) == ("shards/", None)
    assert {"metric": "h2d_pinned_GBps", "reason": "n/a (no accelerator)"} in second["not_measured"]
    assert [verdict["side"] for verdict in measured.verdicts] == [0, 1]


def test_a_device_whose_timeline_failed_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = contexts(asked_for(attribute="all", consumer=Consumer("sim", step_ms=1.0, device="sim")), monkeypatch)
    missing = (asked[1][1].ceilings or {})["not_measured"]
    assert {entry["reason"] for entry in missing} == {"no trial of this side with timers went well"}


def test_none_is_asked_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, measured = contexts(asked_for(attribute="none"), monkeypatch)
    assert (asked, measured.verdicts, measured.matrix) == ([], [], None)


@pytest.mark.parametrize(("attribute", "sides"), [("none", [1]), ("first", [0, 1]), ("all", [0, 1])])
def test_shared_memory_that_ended_the_search_is_a_verdict_of_the_side_searched(
    attribute: str, sides: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that side was attributed or not."""
    _, measured = contexts(asked_for(attribute=attribute, search="knee"), monkeypatch)
    assert [verdict["side"] for verdict in measured.verdicts] == sides
    verdict = measured.verdicts[-1]
    assert (verdict["class"], verdict["confidence"], verdict["gain"]["ratio"]) == ("shared_memory", "medium", 2.0)
    assert "8 workers need 100.0 MiB of /dev/shm, where 64.0 MiB are free" in verdict["evidence"][0]["en"]
    assert verdict["remedies"][0]["options"] == "docker run --shm-size=256m"


def test_a_noisy_host_is_told_to_attribution_and_to_what_ended_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one report is sure in one place and not in another."""
    monkeypatch.setattr(explained, "_cap", lambda *_: Fact("capped", {**CAPPED_AT, "is_seen": True}))
    for is_noisy, confidence in ((False, "high"), (True, "medium")):
        asked, measured = contexts(asked_for(attribute="all", search="knee"), monkeypatch, is_noisy)
        assert [context.is_noisy for _, context in asked] == [is_noisy] * 2
        assert measured.verdicts[-1]["confidence"] == confidence


def test_rates_of_the_search_are_those_of_the_settings_as_they_are_and_of_those_to_use() -> None:
    """By all that is set, and of no workers by what there is."""
    names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "throughput")
    rows = [(0, 2, False, False, 160.0), (2, 2, False, True, 271.0), (2, 4, False, True, 300.0), (4, 2, False, True, 705.0)]
    cells = [dict(zip(names, row, strict=True)) for row in rows]
    wanted = {"num_workers": 4, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": True}
    searched = Searched({"cells": cells}, {"params": wanted}, [])
    assert explained._knee_rates(searched, Settings(2, 2)) == (271.0, 705.0)
    assert explained._knee_rates(searched, Settings(0)) == (160.0, 705.0)
    assert explained._knee_rates(searched, Settings(8)) is None
    assert explained._knee_rates(Searched({"cells": cells}, None, []), Settings(2)) is None


def test_what_the_search_measured_is_advised_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explained, "_cap", lambda *_: None)
    monkeypatch.setattr(explained, "_knee_rates", lambda *_: (271.0, 705.0))
    verdict = Attribution("transform", "transform", "medium", {**dict.fromkeys("FGH"), "L": 290.0}, (), None, (), (), 1.0)
    monkeypatch.setattr(explained, "_attributed", lambda *_: (verdict, {}))
    _, measured = contexts(asked_for(attribute="all", search="knee"), monkeypatch)
    assert measured.verdicts[1]["remedies"][0]["en"] == "use 4 workers: the search found 271 -> 705 samples/s"
    assert "search" not in measured.verdicts[0]["remedies"][0]["en"]


def test_a_batch_is_known_of_a_trial_that_was_refused_for_what_it_takes() -> None:
    """Else there is no size of /dev/shm to advise, where nothing else would help."""
    layout = Layout("photos-of-nobody/", "files", "torch")
    refused = TrialResult(TrialSpec(layout, Workload()), "refused", "not run", {"batch": BATCH, "exceeds": "shm"})
    measured = Measured(asked_for(), [layout], Workload(), [Trial(0, 0, 0, {}, refused)], [])
    assert situation_of(measured, 0, {}, is_noisy=False).batch == BATCH
