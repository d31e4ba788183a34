"""Which trial tells most, again and again, until the settings are found and surely among the best: what was never tried comes first."""

from collections.abc import Iterator

from shardtools.bench.search.cell import PLAIN_PREFETCH, Cell, Space
from shardtools.bench.search.choice import KNEE_SHARE, PREFETCH_GAIN, choose, plain_rates
from shardtools.bench.search.record import Record

_FINE = 8
"""Intervals of an eighth of W are not cut further: noise is larger than what is left to find."""
_SURE = 2.0
"""Standard errors: of many rivals one is lucky."""
_SPEED_OF_A_WORKER = 1.5
"""Times what the main process does alone: that one stops while the device computes, and noise comes on top."""
_SPEED_BESIDE_A_DEVICE = 2.5
_QUEUE_GAIN = 1.12
"""Where a longer queue was not tried it is taken to bring less than this."""


def settle(record: Record, space: Space, pin: bool) -> None:
    """Ends when nothing is left to ask, at ``max_trials``, or when it has but repeats to ask and no time for them.

    Raises TimeIsUpError while something that has to be tried once was not.
    """
    while record.num_trials < record.max_trials:
        chosen = choose(record, pin)
        if chosen is None:
            return
        cell = next(_untried(record, space, chosen), None)
        if cell is not None:
            record.run(cell)
            continue
        cell = next(_doubts(record, space, chosen), None)
        if cell is None or not record.has_time(1):
            return
        record.run(cell)


def _untried(record: Record, space: Space, chosen: Cell) -> Iterator[Cell]:
    """What may be better than ``chosen``, or take fewer workers, by all that is known of other cells."""
    wanted = [chosen, *_middle(record, chosen), *_queues(record, space, chosen), *_fewer(record, space, chosen)]
    return (cell for cell in wanted if not record.count(cell))


def _middle(record: Record, chosen: Cell) -> Iterator[Cell]:
    """Between the most workers that are too few and the fewest that are enough."""
    rates = plain_rates(record, chosen.pin_memory)
    too_few = max((cell.num_workers for cell in rates if cell.num_workers < chosen.num_workers), default=0)
    width = chosen.num_workers - too_few
    if width > max(1, chosen.num_workers // _FINE):
        yield Cell(too_few + width // 2, PLAIN_PREFETCH, chosen.pin_memory)


def _queues(record: Record, space: Space, chosen: Cell) -> list[Cell]:
    """The other prefetch factors at the chosen W; where no workers are best, at the best that there are, should a queue change that."""
    rates = {cell: rate for cell, rate in plain_rates(record, chosen.pin_memory).items() if cell.num_workers}
    if not rates:
        return []
    num_workers = chosen.num_workers or max(rates, key=lambda cell: rates[cell]).num_workers
    return [Cell(num_workers, factor, chosen.pin_memory) for factor in space.prefetch_factors]


def _fewer(record: Record, space: Space, chosen: Cell) -> Iterator[Cell]:
    """Workers of the grid that are fewer than the climb began with, where so few could be as fast: more may cost what they bring."""
    pin, alone = chosen.pin_memory, Cell(0, PLAIN_PREFETCH, chosen.pin_memory, False)
    rate, best = record.rate(alone), max(record.known().values(), default=0.0)
    if rate is None:
        return
    speed = _SPEED_BESIDE_A_DEVICE if record.outcomes[alone][-1].device_rate else _SPEED_OF_A_WORKER
    most = max(cell.num_workers for cell in plain_rates(record, pin))
    for num_workers in space.workers():
        if 0 < num_workers < most and speed * num_workers * rate >= KNEE_SHARE * best:
            yield Cell(num_workers, PLAIN_PREFETCH, pin)


def _doubts(record: Record, space: Space, chosen: Cell) -> Iterator[Cell]:
    """Repeats that may overturn the choice, then cells nobody expects much of."""
    if record.count(chosen) < space.num_repeats:
        yield chosen
    yield from _unsure_queues(record, space, chosen)
    yield from _rivals(record, space, chosen)
    yield from (cell for cell in _unlikely(record, space, chosen) if not record.count(cell))


def _unsure_queues(record: Record, space: Space, chosen: Cell) -> Iterator[Cell]:
    """A gain of a few percent is the size of noise: one trial of each hides it too often."""
    at = Cell(chosen.num_workers, PLAIN_PREFETCH, chosen.pin_memory)
    for cell in _queues(record, space, chosen):
        if not record.is_sound(cell):
            continue
        least = 2 if cell.num_workers == chosen.num_workers else 1
        if record.count(cell) < least or (record.count(cell) < space.num_repeats and record.is_open(cell, at, PREFETCH_GAIN)):
            yield cell


def _rivals(record: Record, space: Space, chosen: Cell) -> Iterator[Cell]:
    """``chosen`` and whatever leaves it open whether that has 95 % of the best, the one less tried."""
    known = {cell: rate for cell, rate in record.known().items() if cell.pin_memory == chosen.pin_memory}
    for rival in sorted(known, key=lambda cell: known[cell], reverse=True):
        cell = min(chosen, rival, key=record.count)
        is_open = rival != chosen and record.is_open(chosen, rival, KNEE_SHARE, _SURE)
        if is_open and record.count(cell) < space.most_repeats:
            yield cell


def _unlikely(record: Record, space: Space, chosen: Cell) -> Iterator[Cell]:
    """More workers than where the climb ended, unless it ended at a limit, and longer queues elsewhere."""
    rates = plain_rates(record, chosen.pin_memory)
    best = max(record.known().values())
    # Where a cell was refused or failed, more of the same may, too.
    most = max(rates).num_workers if all(map(record.is_sound, record.outcomes)) else space.max_workers
    for num_workers in space.workers():
        if num_workers > most:
            yield Cell(num_workers, PLAIN_PREFETCH, chosen.pin_memory)
    for cell in sorted(rates, key=lambda cell: rates[cell], reverse=True):
        if cell.num_workers and rates[cell] * _QUEUE_GAIN >= best:
            yield from (Cell(cell.num_workers, factor, chosen.pin_memory) for factor in space.prefetch_factors)
