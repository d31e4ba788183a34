"""The report's data without a measurement: reasons of nulls, labels of windows, shared notes; stops a null that nobody explains, a warm
window that is called cold, and a comparison of unlike sides that claims to be sure.
"""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from null_walk import stale, unexplained
from report_parts import MATRIX, RECOMMENDATION, VERDICT, report

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.equality import Proof
from shardtools.bench.measured import Measured, Trial
from shardtools.bench.noise import Noise
from shardtools.bench.report.asides import asides
from shardtools.bench.report.definitions import DEFINITIONS
from shardtools.bench.report.gates import Bounds, gates_of
from shardtools.bench.report.null_reasons import explain
from shardtools.bench.report.side_figures import label_of_window
from shardtools.bench.report.situations import situation_of
from shardtools.bench.report.summary import report_of
from shardtools.bench.request import BenchRequest
from shardtools.bench.spec import Consumer, Layout, TrialSpec, Workload
from shardtools.bench.statistics import compare
from shardtools.bench.trial import TrialResult

NO_STEPS = "a trial of mode throughput times no steps"
FILES, SHARDS = Layout("photos/", "files", "torch"), Layout("shards/", "wds", "webdataset")


def window(**others: Any) -> dict[str, Any]:
    facts = {"warm_steps": 4, "steps": 50, "wall_s": 5.0, "samples": 800, "num_passes": 0, "passes_before": 0, "restart_s": 0.0}
    return {**facts, "is_looped": False, "is_short": False, "drift": None, "pass_samples": None} | others


def found(rate: float, **others: Any) -> dict[str, Any]:
    return {
        "order": "random files",
        "limits": [],
        "warnings": [],
        "batch": {"bytes": 1000, "tensors": 1, "shm_bytes": 4096, "samples": 10},
        "window": window(**others),
        "throughput": rate,
        "startup": {"iter_s": 0.1, "first_batch_s": 0.2, "epoch2_s": None, "teardown_s": 0.05},
        "steps": {"data_wait_ms": None},
        "shares": {"wait": None},
        "rates": {"F": None, "G": None, "H": None, "L": rate},
        "stages": None,
        "timers_share": None,
        "au": None,
    }


WATCHED = {
    "wall_s": 5.0,
    "counters": {"cpu_util": 1.5, "disk_read_MBps": 20.0, "read_bytes": 100_000_000, "await_ms": None},
    "peaks": {"shm": 10, "fd": 30, "rss": 1000, "pss": 500, "pinned": None, "gpu_memory": None},
}
MISSING = [
    *({"metric": name, "reason": NO_STEPS} for name in ("data_wait_ms", "shares.wait", "stages", "timers_share")),
    {"metric": "startup.epoch2_s", "reason": "the epoch is too long"},
    {"metric": "await_ms", "reason": "the device served no read"},
    *({"metric": f"peaks.{name}", "reason": "n/a (no accelerator)"} for name in ("pinned", "gpu_memory")),
    *({"metric": name, "reason": "the consumer `none` only drains"} for name in ("rates.F", "rates.G", "rates.H", "au")),
]
CACHE = {"wanted": "cold-data", "label": "cold-data", "resident_before": 0.0, "resident_after": 1.0, "why": "", "caveats": []}
LEDGER = {
    "cpus_effective": 2,
    "governor": None,
    "storage": [{"uri": "photos/", "fs": None}, {"uri": "shards/", "fs": {"type": "ext4"}}],
    "not_measured": [
        {"metric": "governor", "reason": "no frequency governor is visible"},
        {"metric": "storage.fs of photos/", "reason": "the data is not on this machine"},
    ],
}
QUIET = Noise((), (), True)


def trial(side: int, block: int | None, rate: float = 100.0, cache: dict[str, Any] | None = None, **others: Any) -> Trial:
    spec = TrialSpec((FILES, SHARDS)[side], Workload())
    result = TrialResult(spec, "ok", "", found(rate, **others), deepcopy(WATCHED), deepcopy(MISSING))
    return Trial(side, block, 0, cache or CACHE, result)


def proof(layout: Layout) -> Proof:
    return Proof(layout, 300, "0", 300, 0, (), 0, 30_000, "0", {}, None, {}, False, True)


def summed(trials: list[Trial], noise: Noise = QUIET, **others: Any) -> dict[str, Any]:
    request = BenchRequest(("photos/", "shards/"), plan=BlockPlan.fixed(6, 0), **others)
    pairs = [(one.result.throughput or 1.0, other.result.throughput or 1.0) for one, other in zip(trials[::2], trials[1::2], strict=False)]
    measured = Measured(request, [FILES, SHARDS], Workload(), trials, [(0, 1, compare(pairs))])
    return report_of(measured, [proof(FILES), proof(SHARDS)], [], (deepcopy(LEDGER), noise), 1.0)


def both(looped: bool = False) -> list[Trial]:
    again = {"num_passes": 2, "passes_before": 1, "is_looped": True} if looped else {}
    return [one for block in range(6) for one in (trial(0, block), trial(1, block, 200.0, **again))]


def test_every_null_has_a_reason_by_its_exact_place() -> None:
    data = summed(both())
    assert unexplained(data) == []
    assert stale(data) == []
    reasons = {entry["metric"]: entry["reason"] for entry in data["not_measured"]}
    assert reasons["environment.governor"] == "no frequency governor is visible"
    assert reasons["environment.storage[0].fs"] == "the data is not on this machine"
    assert reasons["sides[0].tokens_per_s"] == "samples are no rows of tokens"
    assert reasons["sides[1].au"] == "the consumer `none` only drains"
    assert reasons["sides[0].startup.epoch2_s"] == "the epoch is too long"
    assert reasons["sides[0].wait_share"] == "no trial with timers was run"
    of_trial = {entry["metric"]: entry["reason"] for entry in data["trials"][0]["not_measured"]}
    assert of_trial["found.steps.data_wait_ms"] == NO_STEPS
    assert of_trial["watched.peaks.pinned"] == "n/a (no accelerator)"
    assert of_trial["found.window.drift"] == "the window is whole passes, or has too few steps to be halved"


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("environment",), "surprise"),
        (("sides", 0), "surprise"),
        (("trials", 0, "found"), "surprise"),
        (("trials", 0, "watched", "counters"), "wait"),
        (("trials", 0, "found"), "my_au"),
        (("noise",), "line"),
    ],
)
def test_a_null_without_a_reason_is_found(parts: tuple[Any, ...], name: str) -> None:
    """Also one whose name is part of another's: ``wait`` is in ``data_wait_ms``, which has a reason."""
    data = summed(both())
    part: Any = data
    for step in parts:
        part = part[step]
    part[name] = None
    explain(data)
    (place,) = unexplained(data)
    assert place.endswith(f".{name}")


def test_parts_that_come_later_are_explained_too() -> None:
    verdict = {
        **VERDICT,
        "stage": None,
        "gain": {"ratio": 2.0, "ci": None, "then": None, "en": "x", "zh": "x"},
        "rates": dict.fromkeys("FGHL"),
    }
    ceilings = {"disk_MBps": None, "not_measured": [{"metric": "disk_MBps", "reason": "no file is large enough"}]}
    cells = [*MATRIX["cells"], {**MATRIX["cells"][0], "predicted": None, "throughput": None}]
    alternatives = [{"params": {**RECOMMENDATION["params"], "prefetch_factor": 4}, "throughput": None, "why": {"en": "x", "zh": "x"}}]
    data = report(
        verdicts=[verdict, {**VERDICT, "gain": None}],
        verdict=verdict,
        ceilings=ceilings,
        matrix={**MATRIX, "cells": cells, "knee": None},
        recommendation={**RECOMMENDATION, "predicted": None, "alternatives": alternatives},
        ablation=[{"side": 0, "stage": "decode", "ratio": 1.0, "ci": None, "n": 1, "rates": [[1.0, 1.0]]}],
        gates=[{"name": "ratio", "required": 2.0, "got": None, "passed": False, "reason": "not_known"}],
    )
    for side in data["sides"]:
        side |= {"tokens_per_s": 1.0, "peaks": {}, "fetched": {}}
    data["environment"] = {}
    explain(data)
    assert unexplained(data) == []
    reasons = {entry["metric"]: entry["reason"] for entry in data["not_measured"]}
    assert reasons["matrix.cells[4]"].startswith("not run: shm 9.4 GiB")
    assert "sides" not in "".join(reasons)


def test_a_side_that_failed_says_how() -> None:
    result = TrialResult(TrialSpec(FILES, Workload()), "hang", "no batch came", {}, {}, [{"metric": "*", "reason": "no batch came"}])
    nothing = {"wanted": "cold-data", "label": "unknown", "why": "no batch came", "caveats": []}
    data = summed([Trial(0, 0, 0, nothing, result), trial(1, 0)])
    assert unexplained(data) == []
    reasons = {entry["metric"]: entry["reason"] for entry in data["not_measured"]}
    assert reasons["sides[0].throughput"] == "no trial of this side went well: hang: no batch came"
    assert "files by torch: hang: no batch came" in data["notes"]


def test_figures_of_a_side_are_medians_and_peaks_the_most() -> None:
    trials = both()
    for number, one in enumerate(trials[::2]):
        one.result.watched["counters"]["cpu_util"] = float(number)
        one.result.watched["peaks"]["shm"] = 10 * number
    figures = summed(trials)["sides"][0]
    assert (figures["cpu_util"], figures["disk_read_MBps"], figures["peaks"]["shm"]) == (2.5, 20.0, 50)
    assert figures["startup"] == {"iter_s": 0.1, "first_batch_s": 0.2, "epoch2_s": None, "teardown_s": 0.05}
    assert figures["first_batch_s"] == pytest.approx(0.3)


def test_stages_are_named_parts_largest_first() -> None:
    timeline = trial(0, None)
    stages = {
        name: {"wall_s": wall, "cpu_s": 0.5, "blocked_s": wall - 0.5, "bytes": 1, "count": 1}
        for name, wall in (("decode", 1.0), ("storage", 3.0))
    }
    spec = replace(timeline.result.spec, mode="timeline")
    timed = replace(timeline, result=replace(timeline.result, spec=spec, found={**timeline.result.found, "stages": stages}))
    assert summed([*both(), timed])["sides"][0]["stages"] == [
        {"name": "storage", "share": 0.75, "wall_s": 3.0, "cpu_s": 0.5, "blocked_s": 2.5},
        {"name": "decode", "share": 0.25, "wall_s": 1.0, "cpu_s": 0.5, "blocked_s": 0.5},
    ]


@pytest.mark.parametrize(
    ("label", "facts", "resident_after", "expected"),
    [
        ("cold-data", {}, 1.0, "cold-data"),
        ("cold-full", {"is_looped": True, "passes_before": 1}, 1.0, "warm"),
        ("cold-data", {"is_looped": True, "passes_before": 1}, None, "warm"),
        ("cold-data", {"is_looped": True, "passes_before": 1}, 0.5, "mixed"),
        ("cold-data", {"is_looped": True, "passes_before": 0}, 1.0, "mixed"),
        ("warm", {"is_looped": True, "passes_before": 1}, 0.5, "warm"),
        ("unknown", {"is_looped": True, "passes_before": 1}, 1.0, "unknown"),
        ("mixed", {}, 1.0, "mixed"),
    ],
)
def test_what_was_read_again_is_not_called_cold(label: str, facts: dict[str, Any], resident_after: float | None, expected: str) -> None:
    cache = {**CACHE, "label": label, "resident_after": resident_after}
    assert label_of_window(trial(0, 0, cache=cache, **facts)) == expected


def test_sides_of_which_one_was_read_again_are_compared_with_low_confidence() -> None:
    data = summed(both(looped=True))
    (compared,) = data["comparisons"]
    assert compared["confidence"] == "low"
    assert compared["doubts"][0]["en"].startswith("only wds by webdataset read its data again, from memory")
    assert [side["cache_labels"] for side in data["sides"]] == [["cold-data"], ["warm"]]
    assert {one["cache"]["label_of_window"] for one in data["trials"] if one["side"] == 1} == {"warm"}
    assert data["cache"]["line"] == "cold-data, 0.0 % resident, cold-data/warm when measured: data was read again"
    assert data["comparisons"][0]["answer"].startswith("wds by webdataset is 2.00x as fast as files by torch")


def test_a_noisy_host_makes_confidence_low_and_a_quiet_one_does_not() -> None:
    noisy = summed(both(), Noise(("before: load 9",), (), True))
    quiet = summed(both())
    assert (noisy["noise"]["is_noisy"], noisy["comparisons"][0]["confidence"]) == (True, "low")
    assert (quiet["noise"]["is_noisy"], quiet["comparisons"][0]["confidence"], quiet["comparisons"][0]["doubts"]) == (False, "normal", [])


def test_a_note_of_both_sides_is_told_once() -> None:
    trials = both()
    for one in trials:
        one.result.found["window"] |= {"is_short": True, "pass_samples": 300, "steps": 30}
        one.result.found["limits"] = ["holds 10 samples in memory"]
    trials[0].result.found["warnings"] = ["Of this side alone."]
    assert summed(trials)["notes"] == [
        "both sides: holds 10 samples in memory",
        "files by torch: Of this side alone",
        "both sides: in 6 of 6 trials the data ended after 30 of 50 steps: give more samples, or a smaller --batch-size",
    ]


def test_data_that_ended_before_the_seconds_were_over_is_told_by_them() -> None:
    trials = both()
    for one in trials:
        one.result.found["window"] |= {"is_short": True, "pass_samples": 300, "steps": 50, "wall_s": 4.46}
    assert summed(trials)["notes"] == ["both sides: in 6 of 6 trials the data ended after 4.5 of 5 s: give more samples"]


def test_where_most_trials_had_too_few_steps_the_words_know_how_many_are_wanted() -> None:
    trials = both()
    for one in trials[:-1]:
        one.result.found["window"] |= {"is_short": True, "pass_samples": 300, "steps": 24}
    measured = Measured(BenchRequest(("a", "b")), [FILES, SHARDS], Workload(), trials, [])
    assert [situation_of(measured, side, LEDGER, is_noisy=False).ended_steps for side in (0, 1)] == [(24, 50), (24, 50)]


def test_a_side_that_was_not_asked_and_shards_that_are_too_few_stand_beside_the_answer() -> None:
    """Not among notes, of which the terminal shows the first few."""
    trials = both()
    for one in trials:
        one.result.found["limits"] = ["1 shard can keep at most 1 of 2 workers busy"] if one.side else []
    data = summed(trials)
    assert data["asides"] == [
        {
            "side": 1,
            "en": "wds by webdataset: 1 shard can keep at most 1 of 2 workers busy: write at least 2 shards",
            "zh": "WDS 分片（webdataset）：只有 1 个分片，2 个 worker 中最多 1 个有活干：请至少写 2 个分片",
        }
    ]
    assert not any("can keep at most" in note for note in data["notes"])
    measured = Measured(BenchRequest(("a", "b")), [FILES, SHARDS], Workload(), both(), [], verdicts=[{"side": 0}])
    (told,) = asides(measured, ["files by torch", "wds by webdataset"])
    assert told["en"] == "wds by webdataset: what limits it was not asked: --attribute all asks it of every side"


def test_a_window_that_was_cut_off_is_not_called_a_set_too_small() -> None:
    """Its pass had not ended: more samples would change nothing."""
    trials = both()
    for one in trials:
        one.result.found["window"]["is_short"] = True
    assert summed(trials)["notes"] == [
        "both sides: in 6 of 6 trials the longest time of a window was over before it had enough steps: a smaller --batch-size has more"
    ]


def test_bounds_are_gates() -> None:
    gates = summed(both(), bounds=Bounds(ratio=1.5, au_percent=90), consumer=Consumer("sim", 2.0))["gates"]
    assert [(gate["name"], gate["required"], gate["passed"]) for gate in gates] == [("ratio", 1.5, True), ("au_percent", 90, False)]


def test_names_of_the_report_are_defined() -> None:
    data = summed(both())
    names = {"throughput", "cpu_util", "disk_read_MBps", "payload_MBps", "startup", "peaks", "stages", "read_amplification", "tokens_per_s"}
    assert names <= data["sides"][0].keys() and names | {"label_of_window", "gates", "verdict", "knee"} <= DEFINITIONS.keys()


def test_what_is_at_hand_of_a_side(tmp_path: Any) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x" * 1000)
    layout = Layout(str(tmp_path), "files", "torch")
    trials = both()
    measured = Measured(
        BenchRequest(("a", "b")), [layout, SHARDS], Workload(), trials, [(0, 1, compare([(100.0, 200.0), (100.0, 201.0)] * 3))]
    )
    found = situation_of(measured, 0, LEDGER, is_noisy=True)
    assert (found.name, found.data_bytes, found.num_shards, found.is_noisy, found.ended_steps) == ("files by torch", 1000, None, True, None)
    assert found.shards_over_this == pytest.approx((2.0, 2.01), abs=0.01) and found.shards_uri == "shards/"
    assert found.batch["samples"] == 10
    turned = situation_of(replace(measured, comparisons=[(1, 0, measured.comparisons[0][2])]), 0, LEDGER, is_noisy=False)
    assert turned.shards_over_this == pytest.approx((0.5, 0.5), abs=0.01)


def test_a_gain_of_shards_that_were_read_again_is_not_sure() -> None:
    trials = both(looped=True)
    compared = compare([(100.0, 200.0), (100.0, 201.0)] * 3)
    measured = Measured(BenchRequest(("a", "b")), [FILES, SHARDS], Workload(), trials, [(0, 1, compared)])
    assert situation_of(measured, 0, LEDGER, is_noisy=False).shards_over_this == pytest.approx((1.0, 2.01), abs=0.01)


@pytest.mark.parametrize(("ci", "reason"), [((1.6, 2.0), "met"), ((1.1, 1.4), "missed"), ((0.03, 300.0), "not_known"), (None, "not_known")])
def test_a_bound_inside_the_interval_is_not_known(ci: tuple[float, float] | None, reason: str) -> None:
    """A batch job must tell slower shards from a noisy night."""
    (gate,) = gates_of(Bounds(ratio=1.5), {"comparisons": [{"ci": ci}], "sides": [{"au": None}]})
    assert (gate["reason"], gate["passed"]) == (reason, reason == "met")
