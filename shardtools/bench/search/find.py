"""The whole search: whether anything is to be changed, how many workers, how long a queue, what else, and whether it is truly better."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from shardtools.bench.search.cell import Cell, Space
from shardtools.bench.search.choice import choose
from shardtools.bench.search.paired import Duel, Saving, duel, saving_of
from shardtools.bench.search.record import Record, TimeIsUpError
from shardtools.bench.search.settle import settle
from shardtools.bench.search.workers import climb
from shardtools.bench.spec import FED_AU
from shardtools.bench.statistics import NO_DIFFERENCE

_SURELY_AS_FAST = 0.90
_MOST_SHARE = 0.4
"""Of the full grid's trials: what the search may take. Repeats end there."""
_SEARCH_SHARE = 0.65
"""Of the time; the rest is for the confirmation, without which the winner of many is partly the luckiest of them."""
_SURE = 2.0
"""Standard errors."""
TIME_BUDGET = "time budget"


@dataclass(frozen=True)
class Goal:
    """What is asked."""

    current: Cell
    kind: Literal["knee", "grid"] = "knee"
    num_samples: int | None = None
    """Of an epoch."""
    seed: int = 0


@dataclass
class Found:
    """What the search came to."""

    record: Record
    current: Cell
    stopped: str = ""
    """Why no more cells were tried: ``gain below 5 %``, ``limit: ...``, ``fed``, ``full grid`` or ``time budget``."""
    is_fed: bool = False
    knee: Cell | None = None
    """Of those tried, the fewest workers and the shortest queue with 95 % of the best rate."""
    best: Cell | None = None
    num_search_trials: int = 0
    """Until the knee was known; pinning, starts of epochs and the confirmation come on top."""
    pinning: Duel | None = None
    confirmation: Duel | None = None
    """The recommended against the current settings."""
    saving: Saving = field(default_factory=lambda: Saving(None, None, "not reached"))
    recommended: Cell | None = None
    is_change: bool = False


def find(record: Record, space: Space, goal: Goal) -> Found:
    """Never raises for a cell that fails or for time that is up: what is known then is what there is."""
    found = Found(record, goal.current)
    record.share = _SEARCH_SHARE
    try:
        if _is_fed(record, goal, found):
            return found
        found.stopped = _search(record, space, goal)
    except TimeIsUpError:
        found.stopped = TIME_BUDGET
    record.share = 1.0
    found.knee = choose(record, goal.current.pin_memory, only_tried=True)
    known = record.known()
    found.best = max(known, key=lambda cell: known[cell], default=None)
    found.num_search_trials = record.num_trials
    _decide(record, space, goal, found)
    return found


def _is_fed(record: Record, goal: Goal, found: Found) -> bool:
    """The fast exit: the device is busy at the current settings already."""
    outcome = record.run(goal.current)
    found.is_fed = outcome.au is not None and outcome.au >= FED_AU
    if found.is_fed:
        found.stopped, found.knee, found.best, found.recommended = "fed", goal.current, goal.current, goal.current
        found.num_search_trials = record.num_trials
    return found.is_fed


def _search(record: Record, space: Space, goal: Goal) -> str:
    if goal.kind == "grid":
        return _grid(record, space, goal.seed)
    pin = goal.current.pin_memory
    record.max_trials = math.floor(_MOST_SHARE * space.full_grid_trials)
    stopped = climb(record, space, pin)
    settle(record, space, pin)
    return stopped


def _grid(record: Record, space: Space, seed: int) -> str:
    """Every cell once, then every one again, each round in an order of its own."""
    cells = space.cells()
    for number in range(1, space.num_repeats + 1):
        random = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))
        for i in random.permutation(len(cells)):
            if record.count(cells[i]) < number and record.is_sound(cells[i]):
                record.run(cells[i])
    return "full grid"


def _decide(record: Record, space: Space, goal: Goal, found: Found) -> None:
    """From the knee to what is recommended: pinning, workers that are kept, and the duel with what is now."""
    if found.knee is None:
        return
    chosen = found.knee
    if space.has_pinning:
        chosen = _pinned(record, chosen, goal, found)
    if chosen.num_workers:
        chosen = _persistent(record, chosen, goal, found)
    found.recommended, found.is_change = chosen, chosen != goal.current
    if chosen == goal.current or not _differs_in_rate(chosen, goal.current):
        return
    if not record.is_sound(goal.current):
        return
    found.confirmation = duel(record, goal.current, chosen, goal.seed)
    if not _is_better(record, found.confirmation):
        found.recommended, found.is_change = goal.current, False


def _differs_in_rate(chosen: Cell, current: Cell) -> bool:
    """Keeping workers changes the starts of epochs alone."""
    return (chosen.num_workers, chosen.prefetch_factor, chosen.pin_memory) != (
        current.num_workers,
        current.prefetch_factor,
        current.pin_memory,
    )


def _is_better(record: Record, fought: Duel) -> bool:
    """Clearly faster; or surely not 10 % slower, with fewer workers. Without blocks the search has to be as sure."""
    compared = fought.comparison
    if compared is None:
        before, after = record.rate(fought.first), record.rate(fought.second)
        if fought.failure or before is None or after is None:
            return False
        return math.log(after / before) - _SURE * record.error_of(fought.first, fought.second) > math.log(1 + NO_DIFFERENCE)
    if compared.is_clear and compared.ratio > 1:
        return True
    has_fewer = fought.second.num_workers < fought.first.num_workers
    return has_fewer and compared.ci is not None and compared.ci[0] >= _SURELY_AS_FAST


def _pinned(record: Record, knee: Cell, goal: Goal, found: Found) -> Cell:
    """Pinning can lose, so it is tried both ways in paired blocks; without a clear winner it stays as it is."""
    other = Cell(knee.num_workers, knee.prefetch_factor, not knee.pin_memory, knee.persistent_workers)
    found.pinning = duel(record, knee, other, goal.seed + 1)
    compared = found.pinning.comparison
    return other if compared is not None and compared.is_clear and compared.ratio > 1 else knee


def _persistent(record: Record, chosen: Cell, goal: Goal, found: Found) -> Cell:
    """Computed from the starts of a second epoch, not swept: inside an epoch there is no difference."""
    kept = Cell(chosen.num_workers, chosen.prefetch_factor, chosen.pin_memory, True)
    new = Cell(chosen.num_workers, chosen.prefetch_factor, chosen.pin_memory, False)
    rate = record.rate(chosen)
    epoch_s = goal.num_samples / rate if goal.num_samples and rate else None
    found.saving = saving_of(record.epoch2_s(kept), record.epoch2_s(new), epoch_s)
    return kept if found.saving.is_worth_it else new
