"""Bounds that a batch job requires of a bench, and whether they were kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """None: not required."""

    ratio: float | None = None
    """The second side is surely so many times as fast as the first: the lower end of the interval counts."""
    au_percent: float | None = None
    """The device is so busy with the side named last."""


def gates_of(bounds: Bounds, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of a report's data: ``{name, required, got, passed}`` of each bound; ``got`` is None where nothing was measured that tells."""
    asked = (("ratio", bounds.ratio, _surely(data["comparisons"])), ("au_percent", bounds.au_percent, _au_percent(data["sides"])))
    return [
        {"name": name, "required": required, "got": got, "passed": got is not None and got >= required}
        for name, required, got in asked
        if required is not None
    ]


def missed(gates: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each bound that was not kept."""
    for gate in gates:
        required, got = gate["required"], gate["got"]
        if gate["passed"]:
            continue
        if gate["name"] == "ratio":
            said = "nothing that can be compared" if got is None else f"surely {got:.2f} times"
            yield f"expected the second side {required:g} times as fast as the first, got {said}"
        else:
            said = "no figure: give --consumer sim or model" if got is None else f"{got:.1f} %"
            yield f"expected the device {required:g} % busy, got {said}"


def _surely(comparisons: Sequence[Mapping[str, Any]]) -> float | None:
    if not comparisons or comparisons[0]["ci"] is None:
        return None
    return float(comparisons[0]["ci"][0])


def _au_percent(sides: Sequence[Mapping[str, Any]]) -> float | None:
    au = sides[-1]["au"]
    return None if au is None else 100 * float(au)
