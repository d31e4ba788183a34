"""Commands that a report says to type; stops one that would measure something else than the report is about."""

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import html_reports
import jsonschema
import pytest

from shardtools.bench.report import Report, command, html, terminal
from shardtools.bench.report.gates import Bounds, gates_of
from shardtools.bench.report.html import _answer as html_answer
from shardtools.bench.report.html._words import Say
from shardtools.bench.request import BenchRequest
from shardtools.cli import bench as cli_bench

URIS = ["demo/images", "demo/images-wds"]
ASKED = {
    "a loader": ["--reader", "torch,shardtools", "--num-workers", "4", "--start-method", "spawn", "--batch-size", "8", "--seed", "3"],
    "functions": ["--decode", "my.code:decode", "--transform", "my.code:crop", "--collate", "my.code:join", "--order", "sequential"],
    "a simulated step": ["--step-ms", "12.5", "--launch-cpu-ms", "2", "--cache", "warm", "--shuffle-buffer", "50"],
    "a model": ["--model", "my.code:model", "--cache", "cold-full", "--allow-drop-caches"],
    "the built-in model": ["--consumer", "model"],
    "a GPU": ["--gpu", "--copy", "async", "--pin-memory", "--prefetch-factor", "4"],
    "a GPU that only takes batches": ["--gpu", "--consumer", "none"],
}


class ParsedError(Exception):
    """Where a bench would begin."""


def parsed(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> BenchRequest:
    """As the command line parses it."""

    def stop(request: BenchRequest, _: Any) -> NoReturn:
        raise ParsedError(request)

    monkeypatch.setattr(cli_bench, "bench", stop)
    with pytest.raises(ParsedError) as found:
        cli_bench.command.main(arguments, standalone_mode=False)
    request: BenchRequest = found.value.args[0]
    return request


def report_of(request: BenchRequest) -> dict[str, Any]:
    data = html_reports.recorded()
    data["workload"] |= {**asdict(request.workload), "order": "shuffled" if request.workload.shuffle else "sequential"}
    data |= {"settings": asdict(request.settings), "consumer": asdict(request.consumer)}
    data["cache"]["wanted"] = request.cache
    for side, reader in zip(data["sides"], request.readers or ("torch", "webdataset"), strict=True):
        side["reader"] = reader
    return data


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_it_asks_for_the_same_but_what_is_to_be_changed(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    request = parsed([*URIS, *asked], monkeypatch)
    data = report_of(request)
    again = shlex.split(command.bench(data, "--blocks", "12"))
    assert again[:2] == ["shardtools", "bench"]
    assert parsed(again[2:], monkeypatch) == parsed([*URIS, *asked, "--blocks", "12"], monkeypatch)
    other = shlex.split(command.bench(data, "--num-workers", "6"))
    assert other.count("--num-workers") == 1
    assert parsed(other[2:], monkeypatch).settings == replace(request.settings, num_workers=6)


def test_a_search_begins_with_the_usual_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    request = parsed([*URIS, "--num-workers", "4", "--prefetch-factor", "8"], monkeypatch)
    assert command.bench(report_of(request), "--matrix") == f"shardtools bench {' '.join(URIS)} --matrix"


@pytest.mark.parametrize(("seconds", "kept"), [(8.0, ["--min-seconds", "8"]), (5.0, []), (1.0, [])])
def test_a_longer_window_and_the_folder_are_asked_for_again_and_a_shorter_one_is_not(seconds: float, kept: list[str]) -> None:
    """What was shorter than by default is no advice."""
    data = html_reports.recorded() | {"written_to": "a report/"}
    for trial in data["trials"]:
        trial["spec"]["min_seconds"] = seconds
    words = shlex.split(command.bench(data, "--blocks", "12"))
    assert words[-4 - len(kept) :] == [*kept, "--report", "a report/", "--blocks", "12"]
    assert shlex.split(command.bench(data, "--min-seconds", "16")).count("--min-seconds") == 1


def test_how_it_is_told_and_what_it_is_held_against_are_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = html_reports.recorded() | {"verdicts": [], "verdict": None, "matrix": None, "gates": []}
    for trial in data["trials"]:
        trial["spec"]["timeout_seconds"] = 300.0
    data["gates"] = gates_of(Bounds(1.2, None), data)
    report = Report(data)
    monkeypatch.setattr(terminal, "lines", lambda data, _: iter([command.bench(data, "--matrix")]))
    assert next(report.lines("zh")).endswith(" --timeout 300 --lang zh --require-ratio 1.2 --matrix")
    assert next(report.lines("en")).endswith(" --timeout 300 --require-ratio 1.2 --matrix")
    monkeypatch.setattr(html, "png", lambda _: {})
    page = Path(report.write(str(tmp_path / "rep"), "zh", True)).read_text()
    assert f"--report {tmp_path / 'rep'} --png --lang zh --require-ratio 1.2" in page
    page = Path(report.write(str(tmp_path / "rep"))).read_text()
    assert "--png" not in page and "--lang" not in page
    schema = json.loads((Path(html.__file__).parent.parent / "schema.json").read_text())
    jsonschema.validate(json.loads((tmp_path / "rep/bench.json").read_text()), schema)


@pytest.mark.parametrize("is_searched", [False, True])
@pytest.mark.parametrize(("num_run", "advised"), [(1, "--blocks 12"), (6, "--blocks 12"), (8, "--blocks 16")])
def test_the_page_says_what_to_run_where_too_few_blocks_left_it_open(num_run: int, advised: str, is_searched: bool) -> None:
    """More of them than were run, also where the best settings were found."""
    data = html_reports.recorded() | {"verdicts": [], "verdict": None}
    if not is_searched:
        data |= {"matrix": None, "recommendation": None}
    data["comparisons"][0] |= {"is_clear": False, "n": num_run}
    code = [entry["code"] for entry in html_answer._next(data, Say("en"))]
    assert code[-1].endswith(f" {advised}")
    data["comparisons"][0] |= {"is_clear": True}
    assert not any("--blocks" in entry["code"] for entry in html_answer._next(data, Say("en")))


def test_one_command_for_an_open_verdict_and_an_open_comparison() -> None:
    data = html_reports.recorded()
    data["comparisons"][0] |= {"is_clear": False, "n": 6}
    assert command.again(data, "--min-seconds 10").endswith(" --min-seconds 10 --blocks 12")
    data["comparisons"][0] |= {"is_clear": True}
    assert command.again(data, "--min-seconds 10").endswith(" --min-seconds 10")
    assert "--blocks" not in command.again(data, "--min-seconds 10")


def test_a_report_that_was_written_asks_for_its_folder_again(tmp_path: Path) -> None:
    """On the page, in the file and in the terminal alike."""
    found = Report(html_reports.recorded() | {"verdicts": [], "verdict": None, "matrix": None})
    page = Path(found.write(str(tmp_path / "rep"))).read_text()
    assert f"--report {tmp_path / 'rep'}" in page
    assert json.loads((tmp_path / "rep/bench.json").read_text())["written_to"] == str(tmp_path / "rep")
