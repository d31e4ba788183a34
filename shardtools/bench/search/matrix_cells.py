"""The cells of the table as the report has them: tried, refused, computed, or not needed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shardtools.bench.prediction import Prediction
from shardtools.bench.search import TIME_BUDGET, Cell, Found, Space
from shardtools.bench.trial import TrialResult

_NORMAL_975 = 1.96
_PEAKS = ("shm", "fd", "rss", "pinned")


class Foresees(Protocol):
    """What can be told of a cell without trying it."""

    def foreseen(self, cell: Cell) -> Prediction | None: ...

    def refusal(self, cell: Cell) -> str | None: ...


def cells_json(
    found: Found, space: Space, foresees: Foresees, seen: Mapping[Cell, Sequence[TrialResult]]
) -> tuple[list[dict[str, Any]], dict[Cell, int]]:
    """All cells, by pinning, workers, prefetch factor and keeping of workers; and the place of each in the list."""
    computed = _restarting(found)
    paired = {cell for cell in seen if _paired_rates(cell, seen)}
    listed = {*found.record.outcomes, *paired, *_of_table(space, found), *computed}
    ordered = sorted(listed, key=lambda cell: (cell.pin_memory, cell.num_workers, cell.prefetch_factor, not cell.persistent_workers))
    cells = []
    for cell in ordered:
        if cell in found.record.outcomes or (cell in paired and cell not in computed):
            part = _tried(cell, found, seen.get(cell, ()))
        elif cell in computed:
            part = _computed(computed[cell])
        else:
            part = _not_tried(found, foresees.refusal(cell))
        foreseen = foresees.foreseen(cell)
        cells.append(_setting(cell) | part | {"predicted": None if foreseen is None else foreseen.as_json()})
    return cells, {cell: place for place, cell in enumerate(ordered)}


def _of_table(space: Space, found: Found) -> list[Cell]:
    """What a reader looks for: W x P. In a full grid all of it."""
    cells = space.cells()
    if found.stopped == "full grid" or any(not cell.persistent_workers and cell.num_workers for cell in found.record.outcomes):
        return cells
    pin = found.current.pin_memory
    return [cell for cell in cells if cell.pin_memory == pin and (cell.persistent_workers or cell.num_workers == 0)]


def _setting(cell: Cell) -> dict[str, Any]:
    return {
        "num_workers": cell.num_workers,
        "prefetch_factor": cell.prefetch_factor,
        "pin_memory": cell.pin_memory,
        "persistent_workers": cell.persistent_workers,
    }


def _tried(cell: Cell, found: Found, results: Sequence[TrialResult]) -> dict[str, Any]:
    record = found.record
    outcomes = record.outcomes.get(cell, [])
    failed = next((outcome for outcome in outcomes if outcome.status != "ok"), None)
    rates = record.rates(cell) or [result.throughput for result in results if result.throughput and result.spec.mode == "throughput"]
    throughput = statistics.median(rates) if rates and failed is None else None
    return {
        "status": failed.status if failed else "ok",
        "message": failed.message if failed else "",
        "rates": rates,
        "throughput": throughput,
        "ci": _interval(throughput, len(rates), record.noise()),
        "wait_p99_ms": record.median_of(cell, "wait_p99_ms"),
        "measured": {name: _peak(results, name) for name in _PEAKS},
        "is_computed": False,
    }


def _interval(throughput: float | None, num_trials: int, noise: float) -> list[float] | None:
    """95 %, by what trials of one cell differ by on this machine; None for a single trial."""
    if throughput is None or num_trials < 2:
        return None
    half = _NORMAL_975 * noise / math.sqrt(num_trials)
    return [throughput * math.exp(-half), throughput * math.exp(half)]


def _peak(results: Sequence[TrialResult], name: str) -> int | None:
    peaks = [result.watched.get("peaks", {}).get(name) for result in results]
    return max((int(peak) for peak in peaks if peak is not None), default=None)


def _paired_rates(cell: Cell, seen: Mapping[Cell, Sequence[TrialResult]]) -> bool:
    return any(result.throughput and result.spec.mode == "throughput" for result in seen.get(cell, ()))


def _restarting(found: Found) -> dict[Cell, float]:
    """The chosen cell with new workers each epoch: its rate over whole epochs, from that of the kept and what keeping saves."""
    cell, share = found.recommended, found.saving.epoch_share
    if cell is None or share is None or cell.num_workers == 0:
        return {}
    kept, new = (Cell(cell.num_workers, cell.prefetch_factor, cell.pin_memory, persists) for persists in (True, False))
    rate = found.record.rate(kept)
    if rate is None or new in found.record.outcomes:
        return {}
    return {new: rate / (1 + share)}


def _computed(throughput: float) -> dict[str, Any]:
    message = "computed: the rate of kept workers, less what starting new ones each epoch costs"
    return {"status": "ok", "message": message, "throughput": throughput, "is_computed": True} | _NOTHING


def _not_tried(found: Found, refused: str | None) -> dict[str, Any]:
    message = refused or {TIME_BUDGET: "no time was left", "fed": "the device is fed already"}.get(found.stopped, "not needed for the knee")
    return {
        "status": "refused" if refused else "skipped",
        "message": message,
        "throughput": None,
        "is_computed": False,
    } | _NOTHING


_NOTHING: dict[str, Any] = {"rates": [], "ci": None, "wait_p99_ms": None, "measured": dict.fromkeys(_PEAKS)}
