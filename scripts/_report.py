"""Measured cases as plain data and as Markdown tables."""

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from _measure import Case


def report(cases: Sequence[Case], scale: float) -> dict[str, Any]:
    """Everything measured, as plain data."""
    return {
        "scale": scale,
        "versions": versions(),
        "claims": [
            {
                "case": case.name,
                "claim": claim.text,
                "bound": claim.bound,
                "at_most": claim.at_most,
                "median": statistics.median(case.values(claim)),
                "min": min(case.values(claim)),
                "max": max(case.values(claim)),
                "met": claim.is_met(case.values(claim)),
            }
            for case in cases
            for claim in case.claims
        ],
        "sides": [
            {
                "case": case.name,
                "side": side.name,
                "samples": side.num_samples,
                "command": " ".join(side.command),
                "runs": [asdict(round_[side.name]) for round_ in case.rounds],
            }
            for case in cases
            for side in case.sides
        ],
    }


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "cores": str(len(os.sched_getaffinity(0))), "kernel": os.uname().release}
    told = subprocess.run(["tar", "--version"], check=True, capture_output=True, text=True).stdout
    found["tar"] = told.partition("\n")[0].removeprefix("tar ")
    for name in ("shardtools", "webdataset", "mosaicml-streaming", "torch", "numpy", "orjson", "pillow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def tables(result: dict[str, Any]) -> str:
    """The same for people, as Markdown."""
    claims = [("case", "claim", "bound", "median", "min–max", "met")]
    for row in result["claims"]:
        sign = "≤" if row["at_most"] else "≥"
        shown = (f"{row['median']:.3g}", f"{row['min']:.3g}–{row['max']:.3g}", "yes" if row["met"] else "NO")
        claims.append((row["case"], row["claim"], f"{sign} {row['bound']:.3g}", *shown))
    sides = [("case", "side", "samples", "wall s (min–max)", "CPU s", "peak MB", "samples/s", "in the loop alone")]
    for row in result["sides"]:
        walls, cpus, peaks = ([run[key] for run in row["runs"]] for key in ("wall_seconds", "cpu_seconds", "peak_rss_bytes"))
        wall = statistics.median(walls)
        spread = f"{wall:.3g} ({min(walls):.3g}–{max(walls):.3g})"
        loops = [run["loop_seconds"] for run in row["runs"] if run["loop_seconds"]]
        alone = f"{row['samples'] / statistics.median(loops):,.0f}" if loops else ""
        numbers = (f"{statistics.median(cpus):.3g}", f"{max(peaks) / 1e6:,.0f}", f"{row['samples'] / wall:,.0f}", alone)
        sides.append((row["case"], row["side"], f"{row['samples']:,}", spread, *numbers))
    num_rounds = len(result["sides"][0]["runs"])
    told = ", ".join(f"{name} {text}" for name, text in result["versions"].items())
    return f"{table(claims)}\n\n{table(sides)}\n\n{num_rounds} interleaved rounds; {told}"


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
