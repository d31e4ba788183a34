"""Whether shared memory ended the search: the loader still became faster, and the next setting has no room in ``/dev/shm``."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardtools.bench.search.cell import PLAIN_PREFETCH, Cell, Space
from shardtools.bench.search.find import Found
from shardtools.bench.search.record import Record

_GAIN = 1.05
"""The last step has to have brought so much, and the next to be able to."""
_STEP = 0.8
"""Of the batches in flight: where the search narrowed a limit down, the settings before the last are too near to show what it brought."""
_NEAR_BEST = 0.95
"""Of the best rate: what is told of a slower setting matters to nobody."""


@dataclass(frozen=True)
class Capped:
    """The last step that had room, and the next, which has none."""

    before: Cell
    at: Cell
    """One step on, and faster."""
    wanted: Cell
    """The next step."""
    rate: float
    """Samples a second of ``at``."""
    last_gain: float
    """``at`` over ``before``."""
    most_gain: float
    """``wanted`` over ``at``, if the next step brings as much as the last for what it adds, which is the most it can."""
    is_seen: bool
    """A trial ran out of shared memory; else that was foreseen."""


def capped_by_shm(found: Found, space: Space, lacks_room: Callable[[Cell], bool]) -> Capped | None:
    """Of more workers, else of a longer queue. None where something else ended the search, or nothing more was to be gained.

    ``lacks_room``: whether it is foreseen that the cell's batches do not fit into ``/dev/shm``.
    """
    record, best = found.record, found.best
    if best is None or not best.num_workers:
        return None
    for line, wanted in _lines(record, best, space):
        told = _told(record, line, wanted)
        if told is None or told.rate < _NEAR_BEST * record.known()[best] or told.most_gain < _GAIN:
            continue
        if told.is_seen or lacks_room(wanted):
            return told
    return None


def _told(record: Record, line: Sequence[Cell], wanted: Cell) -> Capped | None:
    """Of one axis; None where the last step did not bring more than the noise of trials."""
    at, rates = line[-1], record.known()
    before = max((cell for cell in line if _ahead(cell) <= _STEP * _ahead(at)), default=None)
    if before is None or rates[at] < _GAIN * rates[before] or record.is_open(at, before, _GAIN):
        return None
    is_seen = any(outcome.status == "oom_shm" for outcome in record.outcomes.get(wanted, []))
    most_gain = _most_gain(record, before, at, wanted)
    return Capped(before, at, wanted, rates[at], rates[at] / rates[before], most_gain, is_seen)


def _ahead(cell: Cell) -> int:
    """Batches in flight."""
    return cell.num_workers * cell.prefetch_factor


def _lines(record: Record, best: Cell, space: Space) -> Iterator[tuple[list[Cell], Cell]]:
    """What was tried along one axis, and what would come next: more workers first, then a longer queue."""
    held = [cell for cell in record.known() if cell.pin_memory == best.pin_memory]
    held = [cell for cell in held if cell.persistent_workers == best.persistent_workers or not cell.num_workers]
    for factor in dict.fromkeys((best.prefetch_factor, PLAIN_PREFETCH)):
        line = sorted(cell for cell in held if cell.prefetch_factor == factor)
        num_workers = min(2 * line[-1].num_workers, space.max_workers) if line else 0
        if line and num_workers > line[-1].num_workers:
            yield line, replace(line[-1], num_workers=num_workers)
    line = sorted(cell for cell in held if cell.num_workers == best.num_workers)
    longer = [factor for factor in space.prefetch_factors if factor > line[-1].prefetch_factor]
    if longer:
        yield line, replace(line[-1], prefetch_factor=min(longer))


def _most_gain(record: Record, before: Cell, at: Cell, wanted: Cell) -> float:
    """Each further worker brings no more than the one before it, and none more than the device takes."""
    rates, device_rate, share = record.known(), record.median_of(at, "device_rate"), 1.0
    if before.num_workers:
        share = min(1.0, math.log(rates[at] / rates[before]) / math.log(_ahead(at) / _ahead(before)))
    gain = float((_ahead(wanted) / _ahead(at)) ** share)
    return gain if device_rate is None else max(1.0, min(gain, device_rate / rates[at]))
