"""What a reader of the figures must know, each sentence once: sides that share one are named before it."""

from collections.abc import Iterator, Sequence
from typing import Any

from shardtools.bench.copies import fetches_anew, keeps_copies
from shardtools.bench.measured import Measured
from shardtools.bench.report.asides import is_aside
from shardtools.bench.report.ended import ended, what_ended
from shardtools.bench.spec import Layout
from shardtools.bench.trial import TrialResult

_STEADY = 0.05


def notes(measured: Measured, data: dict[str, Any]) -> list[str]:
    """Of a report's data, without full stops."""
    said: dict[str, list[int]] = {}
    sides = range(len(data["sides"]))
    told = [(side, text) for side in sides for text in _failures(measured, side)]  # first: readers may see only the first few
    told += [(side, text) for side in sides for text in _of_side(measured, data["sides"][side], side)]
    for side, text in told:
        said.setdefault(text.rstrip("."), []).append(side)
    names = [side["name"] for side in data["sides"]]
    return [
        *(caveat.rstrip(".") for caveat in data["cache"]["caveats"]),
        *(f"{_who(sides, names)}: {text}" for text, sides in said.items()),
    ]


def _who(sides: Sequence[int], names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(sides))
    if 1 < len(distinct) == len(names):
        return "both sides" if len(names) == 2 else "all sides"
    return ", ".join(names[side] for side in distinct)


def _of_side(measured: Measured, figures: dict[str, Any], side: int) -> Iterator[str]:
    if figures["overhead"] and figures["overhead"]["warning"]:
        yield figures["overhead"]["warning"]
    results = [trial.result for trial in measured.trials if trial.side == side and trial.result.status == "ok"]
    yield from dict.fromkeys(text for result in results for text in _told(result))
    yield from _windows(measured.layouts[side], results)


def _failures(measured: Measured, side: int) -> Iterator[str]:
    results = [trial.result for trial in measured.trials if trial.side == side]
    yield from dict.fromkeys(f"{result.status}: {result.message}" for result in results if result.status != "ok")


def _told(result: TrialResult) -> list[str]:
    limits = [limit for limit in result.found["limits"] if not is_aside(limit)]
    return [*limits, *result.found["warnings"], *result.leftovers]


def _windows(layout: Layout, results: Sequence[TrialResult]) -> Iterator[str]:
    """How often windows were not what they should be, instead of a sentence for each."""
    windows, too_short = [result.found["window"] for result in results], ended(results)
    num_short = sum(window["is_short"] and not window["is_looped"] for window in windows)
    counts = {
        what_ended(too_short) if too_short else "": len(too_short),
        "the longest time of a window was over before it had enough steps: a smaller --batch-size has more": num_short - len(too_short),
        _again(layout): sum(window["is_looped"] for window in windows),
        "the rate changed by more than 5 % within the window": sum(abs(window["drift"] or 0.0) > _STEADY for window in windows),
    }
    return (f"in {count} of {len(windows)} trials {what}" for what, count in counts.items() if count)


def _again(layout: Layout) -> str:
    if fetches_anew(layout):
        return "the data was read again to fill the window, and fetched again for it"
    where = "local copies" if keeps_copies(layout) else "memory"
    return f"the data was read again to fill the window, so it was read from {where}"
