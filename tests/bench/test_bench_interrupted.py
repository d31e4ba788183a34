"""Ctrl-C in the middle of a bench; stops an hour of finished trials from being thrown away, an interrupted report that passes for a whole
one, and one that ends with 0."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from null_walk import unexplained
from test_bench_json import FILES, LEDGER, QUIET, SHARDS, found, proof

from shardtools.bench import rounds as bench_rounds
from shardtools.bench import run as bench_run
from shardtools.bench.blocks import BlockPlan
from shardtools.bench.measured import Measured
from shardtools.bench.noise import HostReading
from shardtools.bench.page_cache import PageCache
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.report import Report, html
from shardtools.bench.report.summary import report_of
from shardtools.bench.request import BenchRequest
from shardtools.bench.rounds import Rounds
from shardtools.bench.spec import TrialSpec, Workload
from shardtools.bench.trial import TrialResult
from shardtools.cli import bench as command
from shardtools.signals import EndedError

READING = HostReading(0.0, 0.0, 0.0, 0.0, 2, 0.0, 0.0, 0.0, "performance", 0)


def interrupted(after: int, monkeypatch: pytest.MonkeyPatch, by: BaseException | None = None) -> Measured:
    """After so many trials, by Ctrl-C unless something else is given."""
    said: list[str] = []
    ran: list[TrialSpec] = []

    def run_trial(spec: TrialSpec, prepare: Callable[[], None]) -> TrialResult:
        if len(ran) == after:
            raise by or KeyboardInterrupt
        ran.append(spec)
        prepare()
        return TrialResult(spec, "ok", "", found(100.0))

    monkeypatch.setattr(bench_rounds, "run_trial", run_trial)
    monkeypatch.setattr(bench_run, "explained", lambda *_: iter(()))
    request = BenchRequest(("photos/", "shards/"), plan=BlockPlan.fixed(2, 0))
    side = cache_state.Side(PageCache(()), "files")
    rounds = Rounds(request, [FILES, SHARDS], Workload(), said.append, [side, side], [None, None], 2)
    measured = bench_run._measured(rounds, READING, {})
    assert ("interrupted: this is what was measured until now" in said) == measured.is_interrupted
    return measured


def told(measured: Measured) -> dict[str, Any]:
    return report_of(measured, [proof(FILES), proof(SHARDS)], [], (dict(LEDGER), QUIET), 1.0)


@pytest.mark.parametrize(("after", "num_compared"), [(1, 0), (3, 1), (5, 1)])
def test_what_was_measured_is_told_and_marked(after: int, num_compared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = told(interrupted(after, monkeypatch))
    assert (len(data["trials"]), len(data["comparisons"]), data["is_interrupted"]) == (after, num_compared, True)
    assert [entry for entry in unexplained(data) if not entry.startswith("trials[")] == []
    reasons = {entry["metric"]: entry["reason"] for entry in data["not_measured"]}
    assert reasons["verdict"] == "interrupted before it was measured"
    report = Report(data)
    assert report.exit_code == 130
    assert "Interrupted: this is what was measured until then." in "\n".join(report.lines("en"))
    assert "测量被中断：以下是中断前测得的结果。" in "\n".join(report.lines("zh"))


def test_a_scheduler_that_ends_it_is_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = interrupted(3, monkeypatch, EndedError(signal.SIGTERM))
    assert measured.is_interrupted and Report(told(measured)).exit_code == 130


COMMAND = """
import os, signal, sys
from shardtools.cli import bench, main
from shardtools.signals import ends_tidily

def end(*_):
    with ends_tidily():  # as each trial has it, too
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("goes on")

bench.bench = bench.run_self_test = end
sys.argv = ["shardtools", "bench", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("words", [["photos/"], ["--self-test"]])
def test_one_that_is_ended_with_nothing_to_tell_says_so(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM and done.stdout == ""
    said = "error: interrupted by SIGTERM before there was anything to tell; the same command again measures all of it\n"
    assert done.stderr == said


def test_a_whole_run_is_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = interrupted(7, monkeypatch)
    assert not measured.is_interrupted
    report = Report(told(measured))
    assert report.exit_code == 0
    assert "nterrupted" not in "\n".join(report.lines("en"))


def test_before_the_first_trial_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(0, monkeypatch)


def test_the_search_is_kept_where_attribution_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is there as soon as it is known."""

    def explained(measured: Measured, *_: Any) -> Any:
        yield replace(measured, matrix={"cells": []})
        raise KeyboardInterrupt

    def run_trial(spec: TrialSpec, prepare: Callable[[], None]) -> TrialResult:
        prepare()
        return TrialResult(spec, "ok", "", found(100.0))

    monkeypatch.setattr(bench_rounds, "run_trial", run_trial)
    monkeypatch.setattr(bench_run, "explained", explained)
    side = cache_state.Side(PageCache(()), "files")
    rounds = Rounds(BenchRequest(("photos/",), plan=BlockPlan.fixed(1, 0)), [FILES], Workload(), lambda _: None, [side], [None], 2)
    measured = bench_run._measured(rounds, READING, {})
    assert (measured.matrix, measured.is_interrupted) == ({"cells": []}, True)


def test_the_command_writes_it_and_ends_with_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    data = told(interrupted(3, monkeypatch))
    monkeypatch.setattr(command, "bench", lambda *_: Report(data))
    answer = command.command.main(["photos/", "shards/", "--report", str(tmp_path)], standalone_mode=False)
    assert answer.code == 130
    assert answer.remark.startswith("error: interrupted; the report has what was measured until then")
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "report.html"}
    assert "Interrupted: this is what was measured until then." in html.page(data)
