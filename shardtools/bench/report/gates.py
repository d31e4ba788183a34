"""Bounds that a batch job requires of a bench, and whether they were kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_UNKNOWN = ", perhaps more: not shown, give more --blocks on a quiet host"


@dataclass(frozen=True)
class Bounds:
    """None: not required."""

    ratio: float | None = None
    """The second side is surely so many times as fast as the first: the lower end of the interval counts."""
    au_percent: float | None = None
    """The device is so busy with the side named last."""


def gates_of(bounds: Bounds, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of a report's data: ``{name, required, got, passed, reason}`` of each bound.

    ``got`` is None where nothing was measured that tells. ``reason``: ``met``, ``missed``, or ``not_known``, where the bound lies inside
    the interval.
    """
    ratio = (data["comparisons"] or [{"ci": None}])[0]["ci"]
    au = data["sides"][-1]["au"]
    asked = (("ratio", bounds.ratio, ratio), ("au_percent", bounds.au_percent, None if au is None else (100 * au, 100 * au)))
    return [_gate(name, required, interval) for name, required, interval in asked if required is not None]


def _gate(name: str, required: float, interval: Sequence[float] | None) -> dict[str, Any]:
    if interval is None:
        return {"name": name, "required": required, "got": None, "passed": False, "reason": "not_known"}
    low, high = interval
    reason = "met" if low >= required else "missed" if high < required else "not_known"
    return {"name": name, "required": required, "got": low, "passed": reason == "met", "reason": reason}


def missed(gates: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each bound that was not kept."""
    for gate in gates:
        required, got = gate["required"], gate["got"]
        if gate["passed"]:
            continue
        if gate["name"] == "ratio":
            unknown = _UNKNOWN if gate["reason"] == "not_known" else ""
            said = "nothing that can be compared" if got is None else f"surely {got:.2f} times{unknown}"
            yield f"expected the second side {required:g} times as fast as the first, got {said}"
        else:
            said = "no figure: give --consumer sim or model" if got is None else f"{got:.1f} %"
            yield f"expected the device {required:g} % busy, got {said}"
