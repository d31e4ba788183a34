"""The figures; stops one that outlines the wrong stage, fills in what was not measured, hides what was refused, or cannot be drawn."""

import re
import struct
import sys
from typing import Any
from xml.etree import ElementTree

import html_reports
import pytest

from shardtools.bench.report import html
from shardtools.bench.report.html import _numbers, _png, _text
from shardtools.bench.report.html._figures import NARROW, WIDE, drawn
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._words import Say
from shardtools.errors import UsageError

SVG = "{http://www.w3.org/2000/svg}"
ALL = ["pipeline", "gains", "throughput", "heat", "steps", "memory", "pairs"]


def texts(svg: str) -> list[str]:
    """Words that are seen, without those that show when a pointer rests on them."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return ["".join([one.text or "", *(child.tail or "" for child in one)]) for one in found]


def sheet(data: dict[str, Any], name: str, wide: float = WIDE) -> Sheet:
    found = drawn(data, Say.of(data, "en"), name, wide)
    assert found is not None
    return found


def test_all_figures_are_there_and_are_xml() -> None:
    for lang in ("en", "zh"):
        pictures = html.figures(html_reports.on_cuda(), lang)  # type: ignore[arg-type]
        assert list(pictures) == ALL
        for picture in pictures.values():
            root = ElementTree.fromstring(picture)
            assert root.tag == f"{SVG}svg"
            assert "var(" not in picture


def test_figures_without_data_are_left_out() -> None:
    assert list(html.figures(html_reports.recorded())) == ["pipeline", "steps", "memory", "pairs"]
    assert html.figures(html_reports.bare()) == {}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("wide", [WIDE, NARROW])
def test_nothing_lies_outside(name: str, wide: float) -> None:
    """By the estimated width of words, with a tenth for other faces."""
    for report in (html_reports.on_cuda, html_reports.three_sides):
        found = sheet(report(), name, wide)
        for one in ElementTree.fromstring(found.svg()).iter(f"{SVG}text"):
            words = "".join([one.text or "", *(child.tail or "" for child in one)])
            room, at = _text.width(words, 11) * 0.9, float(one.attrib["x"])
            left = {"start": at, "middle": at - room / 2, "end": at - room}[one.attrib.get("text-anchor", "start")]
            assert left >= -1, words
            assert left + room <= wide * 1.1, words
            assert 0 < float(one.attrib["y"]) <= found.height, words


def outlined(svg: str) -> list[tuple[str, float]]:
    """Look and left edge of the boxes of the pipeline that are outlined."""
    boxes = [one for one in ElementTree.fromstring(svg).iter(f"{SVG}rect") if one.get("height") == "96"]
    return [(one.attrib["class"], float(one.attrib["x"])) for one in boxes if " w1" not in one.attrib["class"]]


def test_the_stage_of_the_verdict_is_outlined() -> None:
    box = (WIDE - 7 * 13) / 8 + 13
    found = outlined(sheet(html_reports.full(), "pipeline").svg())
    assert [look for look, _ in found] == ["f-panel l-accent w3"] * 2
    assert [round(left / box) for _, left in found] == [0, 2]  # storage, decode
    assert [round(left / box) for _, left in outlined(sheet(html_reports.fed(), "pipeline").svg())] == [7]


@pytest.mark.parametrize(
    ("verdict", "place"),
    [
        *(
            (name, place)
            for place, name in enumerate(("storage", "parse", "decode", "transform", "collate", "transfer", "h2d_copy", "fed"))
        ),
        *(("shared_memory", 5), ("fd_limit", 5), ("contention", None), ("balanced", None), ("inconclusive", None)),
    ],
)
def test_each_class_has_its_box(verdict: str, place: int | None) -> None:
    data = html_reports.fed()
    data["verdicts"][0] |= {"class": verdict, "stage": "storage" if verdict in ("balanced", "inconclusive") else None}
    box = (WIDE - 7 * 13) / 8 + 13
    assert [round(left / box) for _, left in outlined(sheet(data, "pipeline").svg())] == ([] if place is None else [place])


def test_without_a_verdict_nothing_is_called_a_bottleneck() -> None:
    svg = sheet(html_reports.recorded(), "pipeline").svg()
    assert [look for look, _ in outlined(svg)] == ["f-panel l-muted w2 d1"] * 2
    assert "bottleneck" not in texts(svg)
    assert texts(svg).count("largest share") == 2


def test_what_was_not_measured_says_why() -> None:
    words = texts(sheet(html_reports.recorded(), "pipeline").svg())
    assert words.count("n/a") == 8
    assert "H2D copy, consumer: the consumer `none` only drains" in words


def test_costs_of_a_batch() -> None:
    """1,445 samples read in 0.97666 s of two workers, while 24 batches came: 40.7 ms a batch; 0.97666 of 1.92595 s in all: 51 %."""
    words = texts(sheet(html_reports.full(), "pipeline").svg())
    assert "40.7 ms" in words
    assert "51 %" in words


def cells_with_numbers(svg: str) -> list[str]:
    return [words for words in texts(svg) if re.fullmatch(r"\d,\d{3}|\d{3}", words)]


@pytest.mark.parametrize("wide", [WIDE, NARROW])
def test_the_heat_map_has_measured_numbers_alone(wide: float) -> None:
    data = html_reports.full()
    svg = sheet(data, "heat", wide).svg()
    measured = [_numbers.rate(cell["throughput"]) for cell in data["matrix"]["cells"] if cell["throughput"] is not None]
    assert sorted(cells_with_numbers(svg)) == sorted(measured)
    coloured = re.findall(r'<rect class="f-one"[^>]*fill-opacity', svg)
    assert len(coloured) == len(measured)


def test_refused_cells_show_their_reason_and_untried_ones_nothing() -> None:
    svg = sheet(html_reports.full(), "heat").svg()
    words = texts(svg)
    assert "shm full 1)" in words
    assert "not run 2)" in words
    assert "1) shared memory ran out after 3 batches" in words
    assert any(line.startswith("2) not run: shm 1.25 of 1.1 GB") for line in words)
    assert svg.count('class="f-none l-line w1 d2"') == 4  # P = 8 at W = 1, 2, 8; and W = 16, P = 2, which was skipped
    assert "skipped" not in words


def test_curves_join_only_what_was_measured_side_by_side() -> None:
    data = html_reports.full()
    svg = sheet(data, "throughput").svg()
    lines = re.findall(r'<path class="l-(one|two|three) w2[^"]*"', svg)
    assert lines == ["one"] * 4 + ["two"] * 4  # W = 0, 1, 2, 4, 8; the third has W = 4 alone, and 0
    words = texts(svg)
    assert "knee: W = 4, 3,090" in words
    assert "8 cores (cpus_effective)" in words
    assert not any(word.startswith("G:") for word in words)


def test_the_rate_of_the_gpu_is_a_line_or_an_arrow() -> None:
    data = html_reports.on_cuda()
    assert "G: the GPU takes 3,180" in texts(sheet(data, "throughput").svg())
    for trial in data["trials"]:
        trial["found"]["rates"]["G"] = 90_000.0
    assert "↑ G: the GPU takes 90,000" in texts(sheet(data, "throughput").svg())


def test_at_most_120_steps_are_shown() -> None:
    svg = sheet(html_reports.on_cuda(), "steps").svg()
    assert "step 120:" in svg
    assert "step 121:" not in svg
    assert html.figures(html_reports.on_cuda())["steps"].count("computing, ms 19.2 ms") == 240


def test_memory_beside_its_prediction() -> None:
    words = texts(sheet(html_reports.full(), "memory").svg())
    assert "36.2 MB / 48.2 MB" in words
    assert "not measured / 1.24 GB" in words
    assert "80 % of it | free /dev/shm 1.1 GB" in words
    assert "the most a setting may need; refused above 80 % of what is free" in words


def test_pairs_show_each_block_and_the_ratio() -> None:
    svg = sheet(html_reports.full(), "pairs").svg()
    assert len(re.findall(r"<title>block \d", svg)) == 12
    assert {"2.31×", "95 % 2.20–2.40, p = 0.031, n = 6"} <= set(texts(svg))
    failed = sheet(html_reports.three_sides(), "pairs").svg()
    assert texts(failed).count("×") == 6
    assert "3*" in texts(failed)


def test_pictures() -> None:
    pytest.importorskip("resvg_py", reason="resvg-py is not installed: the extra `report` has it")
    found = html.png(html.figures(html_reports.full()))
    assert list(found) == ALL
    for name, image in found.items():
        assert image[:8] == b"\x89PNG\r\n\x1a\n", name
        width, height = struct.unpack(">II", image[16:24])
        assert width == 2 * (WIDE + 56)
        assert height > 300


def test_pictures_without_the_extra_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UsageError, match=r"^expected the package resvg-py for --png; pip install 'shardtools\[report\]'$"):
        html.png({"pipeline": "<svg/>"})


class NoFont:
    """Draws as resvg does where the system has no font: the words are not there."""

    @staticmethod
    def svg_to_bytes(svg_string: str) -> bytes:
        return b"as if <text> were not there" if "<text" in svg_string else b""


def test_pictures_without_a_font_are_an_error_not_pictures_without_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_png, "_renderer", lambda: NoFont)
    with pytest.raises(UsageError, match="expected a font that has 'A' for --png"):
        html.png({"pipeline": "<svg/>"})


class NamedFontsAlone:
    """Draws as resvg does where it does not find the font that the system has for sans-serif, but those that are named."""

    @staticmethod
    def svg_to_bytes(svg_string: str, **_options: float) -> bytes:
        return svg_string.encode() if '"DejaVu Sans"' in svg_string else b"as if <text> were not there"


def test_a_system_without_a_generic_font_still_gives_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_png, "_renderer", lambda: NamedFontsAlone)
    assert html.png({"pipeline": '<svg>"DejaVu Sans"</svg>'}) == {"pipeline": b'<svg>"DejaVu Sans"</svg>'}


def test_words_are_cut_in_the_middle_and_wrapped() -> None:
    name = "s3://bucket/a/very/long/prefix/imagenet-wds by shardtools"
    shorter = _text.cut(name, 12, 200)
    assert len(shorter) < len(name)
    assert shorter.startswith("s3://")
    assert shorter.endswith("by shardtools")
    assert _text.cut("files", 12, 200) == "files"
    assert list(_text.wrapped("one two three", 10, 46)) == ["one two", "three"]
    assert "".join(_text.wrapped("x" * 50, 10, 100)) == "x" * 50
    assert list(_text.wrapped("没有加载器", 10, 30)) == ["没有加", "载器"]
    assert list(_text.wrapped("没有加。载器", 10, 30)) == ["没有加。", "载器"]


def test_text_that_xml_cannot_carry_is_replaced() -> None:
    assert _text.clean("a\x00b\udcffc\u202ed\ne 中") == "a\ufffdb\ufffdc\ufffdd\ne 中"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 B"), (999, "999 B"), (48_168_960, "48.2 MB"), (1_240_000_000, "1.24 GB"), (2.5e13, "25 TB"), (None, "n/a")],
)
def test_sizes(value: float | None, words: str) -> None:
    assert _numbers.size(value) == words


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.03, 0.03), (0.99, 1), (1, 1), (101, 150), (3342, 4000), (9999, 10000), (61, 80)])
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert _numbers.top_of_axis(value) == pytest.approx(top)


def test_a_gain_that_is_not_sure_looks_so() -> None:
    """Hollow and dashed: without an interval, with one that reaches below 1, and all of a verdict that is inconclusive."""
    data = html_reports.full() | {"noise": {"line": "quiet", "sentences": [], "is_noisy": False}}
    dashed = sheet(data, "gains").svg().count('class="f-none l-muted w1 d2"')
    assert dashed == 6  # of ten: transfer of the files has no interval, five others reach 1 or below
    open_verdict = data["verdicts"][0] | {"class": "inconclusive", "stage": None}
    data["verdicts"] = [open_verdict, data["verdicts"][1]]
    assert sheet(data, "gains").svg().count('class="f-none l-muted w1 d2"') == 8


def test_on_a_noisy_host_or_of_one_pair_no_gain_is_drawn_as_sure() -> None:
    """By the same rule as the confidence of the verdict."""
    data = html_reports.full() | {"noise": {"line": "noisy host", "sentences": ["before: load"], "is_noisy": True}}
    assert sheet(data, "gains").svg().count('class="f-none l-muted w1 d2"') == 10
    quiet = html_reports.full() | {"noise": {"line": "quiet", "sentences": [], "is_noisy": False}}
    for one in quiet["ablation"]:
        one["n"] = 1
    assert sheet(quiet, "gains").svg().count('class="f-none l-muted w1 d2"') == 10


def test_a_curve_that_still_rises_has_no_knee() -> None:
    data = html_reports.full()
    knee = data["matrix"]["cells"][data["matrix"]["knee"]]
    words = " ".join(texts(sheet(data, "throughput").svg()))
    assert "knee: W =" in words and "still rising" not in words
    cells = [cell for cell in data["matrix"]["cells"] if cell["num_workers"] <= knee["num_workers"]]
    data["matrix"] |= {"cells": cells, "knee": cells.index(knee), "best": cells.index(knee)}
    words = " ".join(texts(sheet(data, "throughput").svg()))
    assert "best tried, still rising: W =" in words and "knee: W =" not in words
    assert any(one.startswith("best tried · ") for one in texts(sheet(data, "heat").svg()))


def test_the_head_of_the_stages_has_the_rate_of_their_own_trial() -> None:
    """Not the median over blocks: two numbers for one thing."""
    data = html_reports.full()
    for trial in data["trials"]:
        if trial["block"] is None:
            trial["found"]["throughput"] = 1111.0
    assert "1,111 samples/s in the trial with timers" in texts(sheet(data, "pipeline").svg())


def test_an_interval_that_tells_nothing_does_not_flatten_the_others() -> None:
    data = html_reports.full()
    data["ablation"][1]["ci"] = [0.001, 5000.0]
    words = texts(sheet(data, "gains").svg())
    assert "1.12× (interval too wide)" in words
    assert "2.41× (2.20–2.63)" in words
