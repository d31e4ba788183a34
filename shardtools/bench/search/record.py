"""What was tried, in the order it was tried, within a budget of time."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shardtools.bench.search.cell import Cell, Outcome

Run = Callable[[Cell], Outcome]
Clock = Callable[[], float]
_MARGIN = 1.2
"""A trial may take so many times as long as the ones before."""
_UNSURE = 1.3
"""Standard errors within which a ratio may lie on either side of a line, so that more trials can tell."""
_PRIOR_NOISE, _PRIOR_FREEDOM = 0.03, 2
"""What trials on a usual host differ by, and how many repeats that knowledge is worth."""


class TimeIsUpError(Exception):
    """No further trial fits into the budget: what is known has to do."""


@dataclass
class Record:
    """Runs cells and keeps what came of them."""

    run_cell: Run
    seconds: float = math.inf
    clock: Clock = time.monotonic
    start_of: Callable[[Cell], float | None] | None = None
    """Measures the start of a second epoch in a trial made for it; None: what the trials of the search tell of it has to do."""
    outcomes: dict[Cell, list[Outcome]] = field(default_factory=dict)
    max_trials: float = math.inf
    """Beyond it no more are begun but those of the climb."""
    num_trials: int = 0
    """Of all kinds, those of paired blocks among them."""
    share: float = 1.0
    """Of the seconds, that may be used now."""
    began: float = field(init=False)
    _took: list[float] = field(default_factory=list)
    _noise: float | None = None
    _known: dict[Cell, float] | None = None
    """Both until the next trial: the search asks hundreds of times between two."""

    def __post_init__(self) -> None:
        self.began = self.clock()

    def run(self, cell: Cell) -> Outcome:
        """Once more, for the search. Raises TimeIsUpError."""
        outcome = self.run_apart(cell)
        self.outcomes.setdefault(cell, []).append(outcome)
        self._noise = self._known = None
        return outcome

    def once(self, cell: Cell) -> Outcome:
        """Its last outcome, or that of a first trial. Raises TimeIsUpError."""
        known = self.outcomes.get(cell)
        return known[-1] if known else self.run(cell)

    def run_apart(self, cell: Cell) -> Outcome:
        """Beside the search, for a paired block. Raises TimeIsUpError."""
        if not self.has_time(1):
            raise TimeIsUpError
        began = self.clock()
        outcome = self.run_cell(cell)
        if outcome.is_trial:
            self.num_trials += 1
            self._took.append(self.clock() - began)
        return outcome

    def epoch2_s(self, cell: Cell) -> float | None:
        """From ``iter()`` to the first batch of a second epoch; None where that cannot be told or there is no time."""
        known = self.median_of(cell, "epoch2_s")
        if known is not None or self.start_of is None or not self.has_time(1):
            return known
        self.num_trials += 1
        return self.start_of(cell)

    def has_time(self, num_trials: int) -> bool:
        """Whether so many fit, by how long the last ones took."""
        each = _MARGIN * statistics.mean(self._took[-5:]) if self._took else 0.0
        return self.clock() - self.began + num_trials * each <= self.share * self.seconds

    def count(self, cell: Cell) -> int:
        return len(self.outcomes.get(cell, []))

    def is_sound(self, cell: Cell) -> bool:
        """Not refused, and no trial of it failed."""
        return all(outcome.status == "ok" for outcome in self.outcomes.get(cell, []))

    def rate(self, cell: Cell) -> float | None:
        """The median of its trials; None where it was not tried or did not go well every time."""
        return self.known().get(cell)

    def rates(self, cell: Cell) -> list[float]:
        return [outcome.rate for outcome in self.outcomes.get(cell, []) if outcome.status == "ok" and outcome.rate]

    def known(self) -> Mapping[Cell, float]:
        """All cells with a rate."""
        if self._known is None:
            tried = {cell: self.rates(cell) for cell in self.outcomes if self.is_sound(cell)}
            self._known = {cell: statistics.median(rates) for cell, rates in tried.items() if rates}
        return self._known

    def median_of(self, cell: Cell, name: str) -> float | None:
        """Of a figure of its trials that went well."""
        values = [getattr(outcome, name) for outcome in self.outcomes.get(cell, []) if outcome.status == "ok"]
        found = [value for value in values if value is not None]
        return statistics.median(found) if found else None

    def noise(self) -> float:
        """Standard deviation of one trial, as a logarithm of its rate: of a usual host, and more and more of this one as cells repeat."""
        if self._noise is None:
            spreads = [_spread(self.rates(cell)) for cell in self.outcomes]
            squares, freedom = (sum(part) for part in zip((_PRIOR_FREEDOM * _PRIOR_NOISE**2, _PRIOR_FREEDOM), *spreads, strict=True))
            self._noise = math.sqrt(squares / freedom)
        return self._noise

    def error_of(self, cell: Cell, other: Cell) -> float:
        """Standard error of the logarithm of the ratio of two cells. One that was not tried counts as tried once."""
        return math.hypot(*(self._noise_of(one) / math.sqrt(max(1, self.count(one))) for one in (cell, other)))

    def _noise_of(self, cell: Cell) -> float:
        """Of one trial of this cell: as of all cells, and more and more of its own, since more workers than processors are less steady."""
        squares, freedom = _spread(self.rates(cell))
        return math.sqrt((_PRIOR_FREEDOM * self.noise() ** 2 + squares) / (_PRIOR_FREEDOM + freedom))

    def is_open(self, cell: Cell, other: Cell, line: float, errors: float = _UNSURE) -> bool:
        """Whether trials leave it open if the rate of ``cell`` over that of ``other`` is above ``line``; False where one has no rate.

        ``errors``: how many standard errors from the line are no proof.
        """
        rate, other_rate = self.rate(cell), self.rate(other)
        if rate is None or other_rate is None:
            return False
        return abs(math.log(rate / other_rate / line)) < errors * self.error_of(cell, other)


def _spread(rates: list[float]) -> tuple[float, int]:
    """Squared distances of their logarithms from the mean, and of how many they are worth."""
    if len(rates) < 2:
        return 0.0, 0
    logs = [math.log(rate) for rate in rates]
    mean = math.fsum(logs) / len(logs)
    return math.fsum((value - mean) ** 2 for value in logs), len(logs) - 1
