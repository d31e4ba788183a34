"""What attribution is given of what was asked and measured; stops advice to measure longer that lengthens nothing."""

from typing import Any

import pytest

from shardtools.bench import explained
from shardtools.bench.attribution import Attribution, Context
from shardtools.bench.blocks import BlockPlan
from shardtools.bench.measured import Measured, Trial
from shardtools.bench.request import BenchRequest
from shardtools.bench.rounds import Rounds
from shardtools.bench.spec import Layout, TrialSpec, Workload
from shardtools.bench.trial import TrialResult

FILES, SHARDS = Layout("photos/", "files", "torch"), Layout("shards/", "wds", "webdataset")
BATCH = {"bytes": 1000, "tensors": 1, "shm_bytes": 4096, "samples": 10}


def result(layout: Layout, mode: Any = "throughput") -> TrialResult:
    return TrialResult(TrialSpec(layout, Workload(), mode=mode), "ok", "", {"throughput": 100.0, "batch": BATCH})


TRIALS = [Trial(0, 0, 0, {}, result(FILES)), Trial(1, 0, 1, {}, result(SHARDS)), Trial(0, None, 0, {}, result(FILES, "timeline"))]


def contexts(request: BenchRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[TrialSpec, Context]], Measured]:
    """What ``attribute`` was called with, and what came of it."""
    asked: list[tuple[TrialSpec, Context]] = []

    def attribute(base: TrialSpec, _run: Any, context: Context) -> Attribution:
        asked.append((base, context))
        return Attribution("inconclusive", None, "inconclusive", dict.fromkeys("FGHL"), (), None, (), (), 1.0)

    monkeypatch.setattr(explained, "attribute", attribute)
    monkeypatch.setattr(explained.ceilings, "probe", lambda layout, _: {"of": layout.uri})
    layouts = [FILES, SHARDS]
    rounds = Rounds(request, layouts, Workload(), lambda _: None, [], [None, None], trials=TRIALS)
    return asked, explained.explain(Measured(request, layouts, Workload(), TRIALS, []), rounds, {}, is_noisy=False)


def asked_for(**others: Any) -> BenchRequest:
    return BenchRequest(("photos/", "shards/"), plan=BlockPlan.fixed(2, seed=7), **others)


@pytest.mark.parametrize(("min_seconds", "window_seconds", "seconds"), [(5.0, 1.25, 90.0), (10.0, 2.5, 180.0), (0.2, 0.5, 30.0)])
def test_longer_windows_are_longer_in_attribution_too(
    min_seconds: float, window_seconds: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((base, context),), measured = contexts(asked_for(min_seconds=min_seconds), monkeypatch)
    assert (context.window_seconds, context.seconds, context.seed) == (window_seconds, seconds, 7)
    assert base.layout == FILES
    (remedy,) = measured.verdicts[0]["remedies"]
    assert remedy["options"] == f"--min-seconds {2 * min_seconds:g}"


def test_each_side_is_given_its_own_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, measured = contexts(asked_for(attribute="all"), monkeypatch)
    assert [base.layout for base, _ in asked] == [FILES, SHARDS]
    assert [[one.spec.layout for one in context.measured] for _, context in asked] == [[FILES], [SHARDS]]
    assert [context.timeline is TRIALS[2].result for _, context in asked] == [True, False]
    assert [context.ceilings for _, context in asked] == [{"of": "photos/"}, {"of": "shards/"}]
    assert [verdict["side"] for verdict in measured.verdicts] == [0, 1]


def test_none_is_asked_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, measured = contexts(asked_for(attribute="none"), monkeypatch)
    assert (asked, measured.verdicts, measured.matrix) == ([], [], None)
