"""Commands that a report says to type; stops one that would measure something else than the report is about."""

import shlex
from dataclasses import asdict, replace
from typing import Any, NoReturn

import html_reports
import pytest

from shardtools.bench.report.html import _command
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
    again = shlex.split(_command.bench(data, "--blocks", "12"))
    assert again[:2] == ["shardtools", "bench"]
    assert parsed(again[2:], monkeypatch) == parsed([*URIS, *asked, "--blocks", "12"], monkeypatch)
    other = shlex.split(_command.bench(data, "--num-workers", "6"))
    assert other.count("--num-workers") == 1
    assert parsed(other[2:], monkeypatch).settings == replace(request.settings, num_workers=6)


def test_a_search_begins_with_the_usual_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    request = parsed([*URIS, "--num-workers", "4", "--prefetch-factor", "8"], monkeypatch)
    assert _command.bench(report_of(request), "--matrix") == f"shardtools bench {' '.join(URIS)} --matrix"
