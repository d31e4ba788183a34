"""Which cell to take, of those whose rates are known: the fewest workers that give 95 % of the best."""

import math

from shardtools.bench.search.cell import PLAIN_PREFETCH, Cell
from shardtools.bench.search.record import Record

KNEE_SHARE = 0.95
PREFETCH_GAIN = 1.03
"""A longer queue has to raise the rate by so much, or to halve the longest waits."""
_MOST_MARGIN = 0.05
_FELT_SHARE = 0.1
"""Waits are long where one in a hundred takes this part of a step or more."""


def _enough(record: Record, rates: dict[Cell, float]) -> set[Cell]:
    """Those with 95 % of the best, and by so much more that luck does not explain it: a cell below must not pass for one of them."""
    best = max(rates, key=lambda cell: rates[cell])
    return {
        cell
        for cell, rate in rates.items()
        if cell == best or math.log(rate / rates[best] / KNEE_SHARE) >= min(record.error_of(cell, best), _MOST_MARGIN)
    }


def plain_rates(record: Record, pin: bool) -> dict[Cell, float]:
    """The curve of throughput against W: one prefetch factor, workers kept."""
    return {
        cell: rate
        for cell, rate in record.known().items()
        if cell.pin_memory == pin and cell.prefetch_factor == PLAIN_PREFETCH and (cell.persistent_workers or cell.num_workers == 0)
    }


def choose(record: Record, pin: bool, only_tried: bool = False) -> Cell | None:
    """The fewest workers and then the shortest queue that give the needed share of the best, also of cells that were not tried.

    What a longer queue gains is measured at one W and taken to be the same at others: else 3 % left by the queue and 5 % left by the
    workers would be 8 % together. The cell returned may so be one that was not tried, unless ``only_tried``. None where no cell went well.
    """
    rates = _expected(record, pin)
    if not rates:
        return None
    enough = _enough(record, rates)
    if only_tried:
        rates = {cell: rate for cell, rate in rates.items() if record.count(cell)}
        enough = enough & rates.keys() or _enough(record, rates)
    chosen = min(enough)
    queues = sorted(cell for cell in rates if cell.num_workers == chosen.num_workers)
    for cell in queues[queues.index(chosen) + 1 :]:
        if rates[cell] >= PREFETCH_GAIN * rates[chosen] or _halves_waits(record, chosen, cell):
            chosen = cell
    return chosen


def _expected(record: Record, pin: bool) -> dict[Cell, float]:
    """Rates that were measured, and beside each of the plain curve what a longer queue would make of it."""
    # Whether workers are kept is decided apart, by how long epochs take to begin.
    known = {
        cell: rate for cell, rate in record.known().items() if cell.pin_memory == pin and (cell.persistent_workers or not cell.num_workers)
    }
    plain = plain_rates(record, pin)
    expected = dict(known)
    for factor, gain in _queue_gains(known, plain).items():
        for cell, rate in plain.items():
            if cell.num_workers:
                expected.setdefault(Cell(cell.num_workers, factor, pin), rate * gain)
    return {cell: rate for cell, rate in expected.items() if record.is_sound(cell)}


def _queue_gains(known: dict[Cell, float], plain: dict[Cell, float]) -> dict[int, float]:
    """By prefetch factor, against the plain one at the same W; the largest where several W were tried, never below 1."""
    gains: dict[int, float] = {}
    for cell, rate in known.items():
        before = plain.get(Cell(cell.num_workers, PLAIN_PREFETCH, cell.pin_memory))
        if before is not None and cell.prefetch_factor > PLAIN_PREFETCH and cell.persistent_workers:
            gains[cell.prefetch_factor] = max(gains.get(cell.prefetch_factor, 1.0), rate / before)
    return gains


def _halves_waits(record: Record, cell: Cell, longer: Cell) -> bool:
    before, after, step = (
        record.median_of(cell, "wait_p99_ms"),
        record.median_of(longer, "wait_p99_ms"),
        record.median_of(cell, "mean_step_ms"),
    )
    if before is None or after is None or step is None or min(record.count(cell), record.count(longer)) < 2:
        return False
    rates = record.rate(cell), record.rate(longer)
    is_slower = rates[0] is not None and rates[1] is not None and rates[1] < rates[0] / PREFETCH_GAIN
    return not is_slower and before >= _FELT_SHARE * step and after <= before / 2
