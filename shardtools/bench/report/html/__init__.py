"""The report as one page: what limits the loader and what to type next, then the figures it rests on. No script, no network."""

from collections.abc import Mapping
from typing import Any, Literal

from shardtools.bench.report.html._figures import pictures
from shardtools.bench.report.html._page import rendered
from shardtools.bench.report.html._png import png
from shardtools.bench.report.html._words import Say

__all__ = ["figures", "page", "png"]


def page(data: Mapping[str, Any], lang: Literal["en", "zh"] = "en") -> str:
    """One self-contained HTML document of what ``bench.json`` holds; parts that were not measured say what to run."""
    return rendered(data, Say.of(data, lang))


def figures(data: Mapping[str, Any], lang: Literal["en", "zh"] = "en") -> dict[str, str]:
    """The page's figures by name, each SVG that stands alone, in the colours of daylight; those that have no data are left out."""
    return pictures(data, Say.of(data, lang))
