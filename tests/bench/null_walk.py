"""The nulls of a report that nobody explains, found without the code that explains them."""

import re
from typing import Any


def unexplained(report: Any) -> list[str]:
    """Places of nulls that no ``not_measured`` on the way to them names: exactly, or by ``[]`` for a number, or as a part that holds them.

    ``*`` in the list of a trial that failed stands for the whole trial.
    """
    return list(_walk(report, "", []))


def _walk(value: Any, place: str, lists: list[tuple[str, list[dict[str, str]]]]) -> Any:
    if isinstance(value, dict):
        if "not_measured" in value:
            lists = [*lists, (place, value["not_measured"])]
        for name, part in value.items():
            yield from _walk(part, f"{place}.{name}" if place else name, lists)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _walk(part, f"{place}[{number}]", lists)
    elif value is None and not any(_names(entry["metric"], place[len(root) :].lstrip(".")) for root, listed in lists for entry in listed):
        yield place


def _names(metric: str, place: str) -> bool:
    if metric == "*":
        return True
    return any(named == metric or named.startswith((f"{metric}.", f"{metric}[")) for named in (place, re.sub(r"\[\d+\]", "[]", place)))


def stale(report: Any) -> list[str]:
    """Places that a list calls not measured, and that hold a number."""
    found = []
    for entry in report["not_measured"]:
        value = _at(report, entry["metric"])
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            found.append(entry["metric"])
    for number, trial in enumerate(report["trials"]):
        found += [
            f"trials[{number}].{entry['metric']}"
            for entry in trial["not_measured"]
            if isinstance(_at(trial, entry["metric"]), int | float | str)
        ]
    return found


def _at(part: Any, place: str) -> Any:
    for step in re.findall(r"[^.\[\]]+|\[\d+\]", place):
        try:
            part = part[int(step[1:-1])] if step[0] == "[" else part[step]
        except (KeyError, IndexError, TypeError):
            return None
    return part
