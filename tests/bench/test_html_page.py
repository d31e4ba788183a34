"""The page of a report; stops one that a name can break out of, that needs the network, that leaves a part out in silence or says a number
that was not measured."""

import copy
import fnmatch
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import html_reports
import jsonschema
import pytest

from shardtools.bench.report import html
from shardtools.bench.report.html._words import _WORDS

REPORTS = [
    html_reports.recorded,
    html_reports.full,
    html_reports.on_cuda,
    html_reports.fed,
    html_reports.three_sides,
    html_reports.bare,
]
PACKAGE = Path(html.__file__).parent
VOID = {"meta", "br", "img"}


class Document(HTMLParser):
    """What a browser would find: elements, their text and attributes; wrong nesting is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.text_of: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes <{self.open[-1:]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text_of.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str) -> str:
        return "\n".join(self.text_of.get(tag, []))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_every_report_is_a_page_that_needs_nothing_else(report: Callable[[], dict[str, Any]], lang: Literal["en", "zh"]) -> None:
    text = html.page(report(), lang)
    text.encode("utf-8")
    found = Document(text)
    assert found.counts["h1"] == 1
    assert found.counts["script"] == 1
    assert not {"link", "img", "iframe", "object", "embed", "form", "a", "base"} & found.counts.keys()
    names = {name for name, _ in found.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "href", "xlink:href", "srcset", "action", "style"}
    without_data = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert set(re.findall(r"url\((.)", without_data)) <= {"#"}
    assert "@import" not in without_data
    ids = Counter(value for name, value in found.attributes if name == "id")
    assert [one for one, times in ids.items() if times > 1] == []
    assert set(re.findall(r"url\(#([^)]*)\)", without_data)) <= ids.keys()


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_the_page_holds_all_data(report: Callable[[], dict[str, Any]]) -> None:
    data = report()
    (raw,) = Document(html.page(data)).text_of["script"]
    assert json.loads(raw) == data


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_the_reports_of_these_tests_are_such_as_bench_writes(report: Callable[[], dict[str, Any]]) -> None:
    schema = json.loads((PACKAGE.parent / "schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report())


def test_a_page_of_the_same_data_is_the_same_and_the_data_is_left_alone() -> None:
    data = html_reports.on_cuda()
    before = copy.deepcopy(data)
    assert html.page(data) == html.page(copy.deepcopy(data))
    assert data == before


def test_names_stay_text() -> None:
    text = html.page(html_reports.three_sides())
    found = Document(text)
    plain = html_reports.HOSTILE.replace("\x00", "\ufffd").replace("\udcff", "\ufffd").replace("\u202e", "\ufffd")
    assert plain.strip() in found.all("h3")
    assert "onerror" not in {name for name, _ in found.attributes}
    assert "49" not in found.all("h3")
    assert "<img" not in text.replace("&lt;img", "")
    for picture in html.figures(html_reports.three_sides()).values():
        assert "<img" not in picture


def test_the_answer_comes_first_and_then_what_to_type() -> None:
    text = html.page(html_reports.full())
    found = Document(text)
    assert found.all("h1") == "Small files: storage limits the loader at 1,240 samples/s; use the shards, with 4 workers."
    assert found.text_of["span"][:2] == ["bottleneck: storage", "confidence: high"]
    assert found.text_of["pre"][0].startswith("import torch\n")
    assert found.text_of["pre"][1] == "docker run --shm-size=1g ..."
    order = [text.index(f'<section id="{name}"') for name in SECTIONS]
    assert order == sorted(order)


SECTIONS = ("next", "sides", "pipeline", "gains", "throughput", "heat", "steps", "memory", "pairs", "record", "details")


def test_what_is_missing_says_what_to_run() -> None:
    found = Document(html.page(html_reports.recorded()))
    typed = "shardtools bench demo/images demo/images-wds --reader torch,shardtools --shuffle-buffer 1000"
    assert found.text_of["pre"] == [f"{typed} --attribute all", f"{typed} --matrix", f"{typed} --blocks 12", f"{typed} --matrix"]
    assert "Settings were not searched" in found.all("p")


def test_commands_can_be_typed_whatever_the_names() -> None:
    data = html_reports.recorded()
    data["sides"][0]["uri"] = "my images/it's $HOME"
    data["workload"]["batch_size"] = 8
    data["consumer"] |= {"device": "cuda", "kind": "model"}
    typed = Document(html.page(data)).text_of["pre"]
    asked = "--reader torch,shardtools --batch-size 8 --shuffle-buffer 1000"
    assert typed[1] == f"""shardtools bench 'my images/it'"'"'s $HOME' demo/images-wds {asked} --gpu --matrix"""


def test_nothing_is_to_be_changed_where_the_device_is_fed() -> None:
    found = Document(html.page(html_reports.fed()))
    assert found.all("h1") == "The GPU is fed (AU 97 %); change nothing."
    assert "Change nothing: this is what you have" in found.all("p")


def test_what_is_left_open_is_asked_again_first() -> None:
    data = html_reports.full()
    rerun = {"name": "rerun", "en": "rerun, longer", "zh": "重跑", "options": "--min-seconds 10"}
    data["verdict"] |= {"class": "inconclusive", "stage": None, "confidence": "inconclusive", "gain": None, "remedies": [rerun]}
    found = Document(html.page(data))
    assert "Rerun, longer:" in found.all("p")
    assert found.all("li").count("rerun, longer") == 0  # it is said once
    assert "重跑：" in Document(html.page(data, "zh")).all("p")
    typed = found.text_of["pre"]
    same = "shardtools bench demo/images demo/images-wds --reader torch,shardtools --shuffle-buffer 1000"
    assert typed[0] == f"{same} --min-seconds 10"
    assert typed[1].startswith("import torch")
    data["recommendation"] = None
    data["verdict"]["remedies"] = [rerun | {"options": "shardtools pack demo/images demo/images-wds --to wds"}]
    assert Document(html.page(data)).text_of["pre"][0] == "shardtools pack demo/images demo/images-wds --to wds"


def test_that_a_drain_waits_is_no_figure() -> None:
    """All it does is wait; a reader would take it for their device's."""
    data = html_reports.on_cuda()
    assert "of a step spent waiting" in Document(html.page(data)).all("dd")
    for side in data["sides"]:
        side["au"] = None
    assert "of a step spent waiting" not in Document(html.page(data)).all("dd")


def test_a_side_that_failed_says_how() -> None:
    found = Document(html.page(html_reports.bare()))
    assert found.all("h1") == "No trial went well: hung, no batch for 120 s"
    assert "failed trials: 7" in found.all("p")


def test_a_side_that_an_interrupt_came_before_did_not_fail() -> None:
    data = html_reports.recorded() | {"is_interrupted": True, "comparisons": [], "ablation": [], "verdicts": [], "verdict": None}
    data["trials"] = [trial for trial in data["trials"] if trial["side"] == 0][:1]
    data["sides"][1] |= dict.fromkeys(("throughput", "least", "most")) | {"stages": [], "num_failed": 0}
    found = Document(html.page(data))
    assert "failed" not in found.all("p") + found.all("td")
    assert "not measured" in found.all("td")
    assert "No block has a trial of each side that went well." in found.all("p")  # two sides, and not one alone


def test_a_bound_that_was_missed_is_said() -> None:
    data = html_reports.full()
    data["gates"] = [
        {"name": "ratio", "required": 3.0, "got": 2.2, "passed": False, "reason": "missed"},
        {"name": "au_percent", "required": 9.0, "got": 9.0, "passed": True, "reason": "met"},
    ]
    paragraphs = Document(html.page(data)).text_of["p"]
    assert "expected the second side 3 times as fast as the first, got surely 2.20 times" in paragraphs
    assert not [words for words in paragraphs if "% busy" in words]


def test_the_record_has_a_column_for_each_side() -> None:
    text = html.page(html_reports.on_cuda())
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th><td>([^<]*)</td><td>([^<]*)</td></tr>', text.split('<section id="record">')[1])
    record = {name: (first, second) for name, first, second in rows}
    assert record["throughput"] == ("1,238 samples/s", "2,863 samples/s")
    assert record["h2d_time"][0] == "mean 0.9 ms, p50 0.9 ms, p99 0.9 ms, exposed 0.6 ms"
    assert record["GPU use"] == ("AU 39 %, NVML 41 %, 21 GB", "AU 90 %, NVML 92 %, 21 GB")
    assert record["conclusion"][1].startswith("Shards: decoding")


def test_chinese_where_it_is_asked_for() -> None:
    text = html.page(html_reports.full(), "zh")
    found = Document(text)
    assert '<html lang="zh-CN">' in text
    assert found.all("h1").startswith("当前瓶颈在存储")
    assert {"下一步输入", "时间花在哪里", "记录"} <= set(found.text_of["h2"])
    headings = found.all("h2") + found.all("h3")
    assert not re.search(r"What|Where|Why|Memory", headings)


NAMES = {
    "class": [
        "fed",
        "h2d_copy",
        "storage",
        "parse",
        "decode",
        "transform",
        "collate",
        "transfer",
        "shared_memory",
        "fd_limit",
        "contention",
        "balanced",
        "inconclusive",
    ],
    "stage": ["storage", "parse", "decode", "transform", "collate", "transfer", "h2d", "gpu"],
    "status": ["ok", "refused", "oom_shm", "fd", "hang", "error", "skipped"],
    "confidence": ["high", "medium", "inconclusive"],
    "missing": ["pipeline", "throughput", "steps", "memory", "pairs"],
    "next": ["snippet", "keep", "docker", "kubernetes", "measure", "blocks", "attribute"],
}
"""Words that are put together from the data."""


def test_every_word_the_page_says_is_known() -> None:
    sources = [path.read_text("utf-8") for path in PACKAGE.iterdir() if path.suffix in (".py", ".j2")]
    said = {key for text in sources for key in re.findall(r'\bsay\("([^"{]+)"\)', text)}
    assert len(said) > 40
    said |= {f"{kind}.{name}" for kind, names in NAMES.items() for name in names}
    assert said <= _WORDS.keys()
    assert all(english and chinese for english, chinese in _WORDS.values())


def test_templates_are_in_the_wheel() -> None:
    settings = tomllib.loads((PACKAGE.parents[3] / "pyproject.toml").read_text("utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["shardtools"]
    needed = [f"bench/report/html/{path.name}" for path in PACKAGE.iterdir() if path.suffix in (".css", ".j2")]
    assert len(needed) == 3
    assert [name for name in needed if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []
