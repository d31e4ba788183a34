"""From the data to the document: what the template is given, and how it is filled."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from shardtools.bench.report import command
from shardtools.bench.report.html._answer import answer, side_cards
from shardtools.bench.report.html._figures import FIGURES, NARROW, WIDE, drawn
from shardtools.bench.report.html._memory import uses
from shardtools.bench.report.html._numbers import count, size
from shardtools.bench.report.html._record import record, rows_of
from shardtools.bench.report.html._sheet import looks
from shardtools.bench.report.html._text import clean
from shardtools.bench.report.html._words import Say

Json = Mapping[str, Any]

_TO_RUN = {"throughput": ("--matrix",), "pipeline": (), "steps": ()}
"""What gives a figure that is missing; others take another kind of data."""
_SILENT = ("gains", "heat")
"""Shown only where they were measured: the verdict and the curves say what is missing."""


def rendered(data: Json, say: Say) -> str:
    """The whole document."""
    return _template().render(
        say=say,
        lang="zh-CN" if say.lang == "zh" else "en",
        css=Markup(_text("page.css") + looks()),
        answer=answer(data, say),
        sides=list(side_cards(data, say)),
        sections=list(_sections(data, say)),
        memory=_memory_rows(data),
        names=[side["name"] for side in data["sides"]],
        record=record(data, say),
        proof=_cache_rows(data, say),
        environment=list(rows_of(data["environment"])),
        data=data,
        raw=Markup(_raw(data)),
    )


def _sections(data: Json, say: Say) -> Iterator[dict[str, Any]]:
    """Each figure, wide and narrow, or what to run to get it."""
    for name in FIGURES:
        wide, narrow = drawn(data, say, name, WIDE), drawn(data, say, name, NARROW)
        if wide is None and name in _SILENT:
            continue
        yield {
            "name": name,
            "missing": say("missing.blocks" if name == "pairs" and len(data["sides"]) > 1 else f"missing.{name}"),
            "wide": None if wide is None else Markup(wide.svg()),
            "narrow": None if narrow is None else Markup(narrow.svg()),
            "run": command.bench(data, *_TO_RUN[name]) if wide is None and name in _TO_RUN else "",
        }


def _memory_rows(data: Json) -> list[tuple[str, list[tuple[str, str]]]]:
    """By setting, predicted and measured of each resource; without those that nothing is known of."""
    return [
        (
            use.name,
            [
                (size(use.foreseen("shm")), size(use.measured.get("shm"))),
                (count(use.foreseen("fd")), count(use.measured.get("fd"))),
                (size(use.foreseen("rss")), size(use.measured.get("rss"))),
                (size(use.foreseen("pinned")), size(use.measured.get("pinned"))),
            ],
        )
        for use in uses(data)
    ]


def _cache_rows(data: Json, say: Say) -> list[list[str]]:
    def share(value: float | None) -> str:
        return "n/a" if value is None else f"{100 * value:.1f} %"

    return [
        [
            str(trial["id"]),
            say.side(data["sides"][trial["side"]]["name"]),
            "–" if trial["block"] is None else str(trial["block"] + 1),
            trial["cache"]["label"],
            trial["cache"].get("method") or "–",
            share(trial["cache"].get("resident_before")),
            share(trial["cache"].get("resident_after")),
        ]
        for trial in data["trials"]
    ]


def _raw(data: Json) -> str:
    """JSON that no name in it can end early: what HTML would read is written as escapes."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=_finalized
    )
    environment.filters["unbroken"] = _unbroken
    return environment.from_string(_text("page.html.j2"))


def _unbroken(text: str) -> Markup:
    """Options stay on one line: a browser would break them behind their hyphens."""
    return Markup(re.sub(r"--[a-z][a-z-]*", r'<span class="option">\g<0></span>', str(escape(clean(text)))))


def _finalized(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _text(name: str) -> str:
    return files("shardtools.bench.report.html").joinpath(name).read_text("utf-8")
