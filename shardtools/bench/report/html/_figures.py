"""The figures by name, in the order of the report, each for a wide and for a narrow page."""

from collections.abc import Callable, Mapping
from typing import Any

from shardtools.bench.report.html._curves import throughput
from shardtools.bench.report.html._gains import gains
from shardtools.bench.report.html._heat import heat
from shardtools.bench.report.html._memory import memory
from shardtools.bench.report.html._pairs import pairs
from shardtools.bench.report.html._pipeline import pipeline
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._steps import steps
from shardtools.bench.report.html._words import Say

Json = Mapping[str, Any]

WIDE = 920.0
NARROW = 340.0

FIGURES: dict[str, Callable[[Json, Say, str, float], Sheet | None]] = {
    "pipeline": pipeline,
    "gains": gains,
    "throughput": throughput,
    "heat": heat,
    "steps": steps,
    "memory": memory,
    "pairs": pairs,
}


def drawn(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """One figure; None where the report has nothing for it."""
    return FIGURES[name](data, say, f"{name}-{wide:.0f}", wide)


def pictures(data: Json, say: Say) -> dict[str, str]:
    """Each figure that can be drawn, as SVG that stands alone."""
    sheets = {name: drawn(data, say, name, WIDE) for name in FIGURES}
    return {name: sheet.picture() for name, sheet in sheets.items() if sheet is not None}
