"""What a report says of buckets: requests, bytes and latency of each side that has them, in both languages, and of a cache that is none;
stops figures that are measured and not shown, and a page cache that is named where there is none.
"""

from dataclasses import replace
from typing import Any

import pytest
from report_parts import report
from test_bench_json import SHARDS, found, proof, summed, trial

from shardtools.bench.measured import Measured, Trial
from shardtools.bench.report import terminal
from shardtools.bench.report.columns import width
from shardtools.bench.report.html._record import _bucket
from shardtools.bench.report.html._words import Say
from shardtools.bench.report.notes import notes
from shardtools.bench.report.side_figures import amplify, label_of_window
from shardtools.bench.spec import Layout

FETCHED = {
    "bytes": 1_522_194,
    "requests": 806,
    "MBps": 12.25,
    "bytes_per_sample": 3805.4,
    "requests_per_sample": 2.015,
    "latency_ms": {"mean": 10.04, "p50": 9.08, "p99": 128.98},
}
PIPE = {**FETCHED, "requests": None, "requests_per_sample": None, "latency_ms": None, "bytes_per_sample": 4600.0}
IMAGES = Layout("s3://raw/images", "files", "torch")


def of_bucket() -> dict[str, Any]:
    data = report()
    data["sides"] = [{**one, "fetched": fetched} for one, fetched in zip(data["sides"], (FETCHED, PIPE), strict=True)]
    return data


@pytest.mark.parametrize(("lang", "head"), [("en", "a sample"), ("zh", "每个样本")])
def test_the_terminal_shows_what_was_asked_of_the_store(lang: Any, head: str) -> None:
    lines = list(terminal.lines(of_bucket(), lang))
    begin = next(i for i, line in enumerate(lines) if line.startswith(head))
    assert all(width(line) <= 80 for line in lines[begin : begin + 3])
    assert lines[begin + 1].split()[-10:] == ["2.02", "3.7", "KiB", "1.10", "10", "ms", "9.08", "ms", "129", "ms"]
    assert lines[begin + 2].split()[-7:] == ["n/a", "4.5", "KiB", "1.10", "n/a", "n/a", "n/a"]


def test_local_sides_have_no_such_table() -> None:
    assert not any(line.startswith("a sample") for line in terminal.lines(report(), "en"))


def test_the_page_shows_it_in_place_of_a_disk() -> None:
    first, second = (_bucket(one, Say("en")) for one in of_bucket()["sides"])
    assert (
        first == "12.2 MB/s from the bucket, 1.10× the samples' bytes, 2.02 requests a sample, latency mean 10.0 ms, p50 9.1 ms, p99 129 ms"
    )
    assert "latency" not in second and "requests" not in second


def on(layout: Layout, one: Trial, **facts: Any) -> Trial:
    result = replace(one.result, spec=replace(one.result.spec, layout=layout), found={**one.result.found, **facts})
    return replace(one, result=result)


def test_amplification_is_of_all_that_was_fetched() -> None:
    fetched = {"bytes": 90_000, "samples": 400, "requests": 800, "MBps": 1.0, "wall_s": 1.0, "latency_ms": None}
    one = on(IMAGES, trial(0, 0), fetched=fetched)
    amplify(one.result, proof(IMAGES))  # 100 bytes a sample
    assert one.result.found["read_amplification"] == pytest.approx(90_000 / 40_000)


@pytest.mark.parametrize(
    ("layout", "label"),
    [(IMAGES, "cold-data"), (Layout("s3://d/x", "mds", "streaming"), "warm"), (SHARDS, "warm")],
)
def test_what_is_fetched_again_is_cold_again(layout: Layout, label: str) -> None:
    again = trial(0, 0, num_passes=2, passes_before=1, is_looped=True)
    assert label_of_window(on(layout, again)) == label


@pytest.mark.parametrize(
    ("layout", "words"),
    [(IMAGES, "and fetched again for it"), (Layout("s3://d/x", "mds", "streaming"), "from local copies"), (SHARDS, "from memory")],
)
def test_where_data_that_was_read_again_came_from_is_said(layout: Layout, words: str) -> None:
    data = summed([trial(0, 0), trial(1, 0)])
    again = on(layout, trial(0, 0, num_passes=2, passes_before=1, is_looped=True))
    measured = Measured(request=None, layouts=[layout], workload=None, trials=[again], comparisons=[])  # type: ignore[arg-type]
    told = notes(measured, {**data, "sides": data["sides"][:1]})
    assert any("read again to fill the window" in note and words in note for note in told)


def test_found_is_as_trials_write_it() -> None:
    """Reports of trials that know nothing of buckets have no such figures, and say why."""
    data = summed([trial(0, 0), trial(1, 0)])
    assert "fetched" not in found(1.0) and [one["fetched"] for one in data["sides"]] == [None, None]
    reasons = {entry["metric"]: entry["reason"] for entry in data["not_measured"]}
    assert reasons["sides[0].fetched"] == "the data is on this machine, so nothing is requested"
