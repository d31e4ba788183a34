"""The measured settings, by what a figure needs: nothing between them is ever made up."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
Hold = tuple[bool, bool]
"""``pin_memory``, ``persistent_workers``."""


def cells(data: Json) -> list[Json]:
    return list((data.get("matrix") or {}).get("cells") or [])


def hold(cell: Json) -> Hold:
    return bool(cell["pin_memory"]), bool(cell["persistent_workers"])


def holds(data: Json) -> list[Hold]:
    """Those that were tried, the one with most cells first. Without workers nothing persists: such cells count only where all are so."""
    every = cells(data)
    found: dict[Hold, int] = {}
    for cell in [cell for cell in every if cell["num_workers"]] or every:
        found[hold(cell)] = found.get(hold(cell), 0) + 1
    return sorted(found, key=lambda one: (-found[one], one))


def without_workers(data: Json, pin: bool) -> Json | None:
    """W = 0: it reads nothing ahead, so it has no prefetch factor."""
    none = [cell for cell in cells(data) if not cell["num_workers"]]
    return next((cell for cell in none if bool(cell["pin_memory"]) == pin), next(iter(none), None))


def chosen(data: Json, what: str) -> Json | None:
    """``knee`` or ``best``."""
    index = (data.get("matrix") or {}).get(what)
    return None if index is None else cells(data)[index]


def main_hold(data: Json) -> Hold | None:
    """The pinning and persistence that curves are drawn for."""
    for cell in (chosen(data, "knee"), chosen(data, "best")):
        if cell is not None and cell["num_workers"]:
            return hold(cell)
    return next(iter(holds(data)), None)


def curves(data: Json) -> dict[int, list[Json]]:
    """By prefetch factor, the cells that have a throughput, by rising workers; W = 0 stands at the head of each."""
    wanted = main_hold(data)
    none = without_workers(data, wanted[0]) if wanted else None
    head = [none] if none is not None and none["throughput"] is not None else []
    found: dict[int, list[Json]] = {}
    for cell in sorted(cells(data), key=lambda cell: cell["num_workers"] or 0):
        if cell["num_workers"] and cell["throughput"] is not None and hold(cell) == wanted:
            found.setdefault(cell["prefetch_factor"] or 0, []).append(cell)
    if not found and head:
        return {0: head}
    return {prefetch: [*head, *found[prefetch]] for prefetch in sorted(found)}


def gpu_rate(data: Json) -> float | None:
    """Samples/s that the device takes of a batch it has already: G."""
    rates = [verdict["rates"].get("G") for verdict in data.get("verdicts") or [] if verdict.get("rates")]
    rates += [(trial["found"].get("rates") or {}).get("G") for trial in data["trials"]]
    return next((float(rate) for rate in rates if rate is not None), None)
