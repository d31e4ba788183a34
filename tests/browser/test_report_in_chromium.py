"""The page of a report in a real browser; stops one that asks the network, complains on the console, is wider than a phone, or cannot be
read in the dark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import html_reports
import pytest
from chromium import NAMES, Chromium, View, found

from shardtools.bench.report import html

pytestmark = pytest.mark.browser

ARTEFACTS = Path(__file__).parents[2] / "build" / "ci-artefacts" / "report"
"""Screenshots are kept there."""

Report = tuple[Callable[[], dict[str, Any]], Literal["en", "zh"]]
REPORTS: list[Report] = [
    (html_reports.full, "en"),
    (html_reports.on_cuda, "zh"),
    (html_reports.three_sides, "en"),
    (html_reports.bare, "zh"),
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Chromium:
    command = found()
    if command is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH; as root, apt-get install chromium")
    return Chromium(command, tmp_path_factory.mktemp("chromium"))


def written(folder: Path, report: Report) -> Path:
    make, lang = report
    path = folder / f"{make.__name__}-{lang}.html"
    path.write_text(html.page(make(), lang), "utf-8")
    return path


def test_they_fit_and_ask_for_nothing(chromium: Chromium, tmp_path: Path) -> None:
    """Pages themselves have no script and allow none; they are looked at from outside."""
    pages = [(written(tmp_path, report), width) for report in REPORTS for width in (380, 1280)]
    for (page, width), seen in zip(pages, chromium.probe(pages), strict=True):
        where = f"{page.name} at {width}"
        assert seen["wide"] == width, where
        assert seen["outside"] == [], where
        assert seen["resources"] == [], where
        assert 2 * seen["shown"] == seen["figures"], where  # each is there twice, for wide and for narrow
        assert seen["smallest"] >= 9.5, where
        assert set(seen["selects"]) == {"all"}, where
        assert seen["cut"] == [], where  # two commands that differ in what is cut off look the same


def test_the_console_is_silent(chromium: Chromium, tmp_path: Path) -> None:
    assert chromium.console(*(written(tmp_path, report) for report in REPORTS)) == []


def test_dark_and_light_can_both_be_read(chromium: Chromium, tmp_path: Path) -> None:
    page = written(tmp_path, REPORTS[0])
    light, dark = (chromium.probe([(page, 1280)], is_dark)[0] for is_dark in (False, True))
    assert luminance(light["ground"]) > 0.9
    assert luminance(dark["ground"]) < 0.05
    for seen in (light, dark):
        low, high = sorted((luminance(seen["ground"]), luminance(seen["ink"])))
        assert (high + 0.05) / (low + 0.05) > 7  # WCAG's contrast, AAA


def luminance(colour: str) -> float:
    """Of ``rgb(r, g, b)``, by WCAG's formula."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_screenshot_of_each_width_is_kept(chromium: Chromium, tmp_path: Path) -> None:
    page = written(tmp_path, REPORTS[0])
    for seen, is_dark in zip(chromium.probe([(page, 380), (page, 1280)]), (True, False), strict=True):
        target = ARTEFACTS / f"report-{seen['inner']}-{'dark' if is_dark else 'light'}.png"
        target.unlink(missing_ok=True)
        chromium.screenshot(page, View(seen["inner"], is_dark, seen["high"]), target)
        assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_it_can_be_printed(chromium: Chromium, tmp_path: Path) -> None:
    paper = ARTEFACTS / "report.pdf"
    paper.unlink(missing_ok=True)
    chromium.print(written(tmp_path, REPORTS[0]), paper)
    assert paper.read_bytes()[:5] == b"%PDF-"


BAD = """<!DOCTYPE html><html><head><title>bad</title>{}</head><body><p>bad</p>{}</body></html>"""


def test_the_probe_sees_what_it_looks_for(chromium: Chromium, tmp_path: Path) -> None:
    """A page that is too wide, complains and asks the network: silence about others means something."""
    page = tmp_path / "bad.html"
    page.write_text(BAD.format("", '<div style="width:2000px">wide</div><img src="http://127.0.0.1:9/x.png">'), "utf-8")
    (seen,) = chromium.probe([(page, 380)])
    assert seen["wide"] > 380
    assert seen["outside"] == ["DIV wide"]
    assert seen["resources"] == ["http://127.0.0.1:9/x.png"]
    page.write_text(BAD.format("<script>console.error('planted')</script>", ""), "utf-8")
    assert ["planted" in line for line in chromium.console(page)] == [True]


def test_even_a_request_that_slipped_in_would_be_refused(chromium: Chromium, tmp_path: Path) -> None:
    page = written(tmp_path, REPORTS[3])
    page.write_text(page.read_text("utf-8").replace("<main>", '<main><img src="http://127.0.0.1:9/x.png"><script>1</script>', 1), "utf-8")
    said = chromium.console(page)
    assert len(said) == 2
    assert all("Content Security Policy" in line for line in said)
