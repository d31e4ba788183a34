"""How many workers, roughly: from a guess upward by doubling, until more bring nothing or a limit is met."""

import math

from shardtools.bench.search.cell import PLAIN_PREFETCH, Cell, Outcome, Space
from shardtools.bench.search.record import Record

GAIN = 1.05
"""Doubling the workers has to bring so much."""
_MOST_FLAT = 2
"""Doublings that seem to bring nothing, where noise leaves it open; a look further up tells more than another trial here."""


def climb(record: Record, space: Space, pin: bool) -> str:
    """Tries W = 0, then doubles from half the workers that seem needed until the gain is below 5 % or a limit is met.

    Returns why it ended. Raises TimeIsUpError.
    """
    zero = record.once(Cell(0, PLAIN_PREFETCH, pin, False))
    if space.max_workers == 0:
        return f"limit: {space.cap}"
    num_workers = min(max(1, workers_needed(zero, space) // 2), space.max_workers)
    if record.once(_plain(num_workers, pin)).status != "ok":
        return _below(record, num_workers, pin)
    num_flat, before = 0, num_workers
    while num_workers < space.max_workers and num_flat < _MOST_FLAT:
        before, num_workers = num_workers, min(2 * num_workers, space.max_workers)
        if record.once(_plain(num_workers, pin)).status != "ok":
            return _between(record, (before, num_workers), pin)
        gain, is_sure = _gain(record, _plain(before, pin), _plain(num_workers, pin))
        num_flat = 0 if gain >= GAIN else _MOST_FLAT if is_sure else num_flat + 1
    if num_flat:
        # The peak may lie between: beyond the processors more workers can cost what they bring.
        record.once(_plain((before + num_workers) // 2, pin))
    return "gain below 5 %" if num_flat >= _MOST_FLAT else f"limit: {space.cap}"


def workers_needed(zero: Outcome, space: Space) -> int:
    """Concurrency is rate times time: as many as keep the device fed; where there is none, as there are processors."""
    if zero.rate is None or zero.device_rate is None:
        return space.cpus
    # Without workers a step is load and compute in turn, so the load alone takes 1/F - 1/G of a sample's time.
    return max(1, math.ceil(zero.device_rate / zero.rate - 1 - 1e-9))


def _gain(record: Record, fewer: Cell, more: Cell) -> tuple[float, bool]:
    """Of more workers over fewer, and whether it surely is on its side of 5 %: one trial of each may not tell."""
    before, after = record.rate(fewer), record.rate(more)
    if before is None or after is None:
        return 0.0, True
    return after / before, not record.is_open(more, fewer, GAIN)


def _between(record: Record, interval: tuple[int, int], pin: bool) -> str:
    """The larger number was refused or failed: the most workers below it that are not refused. Nothing is risked twice."""
    low, high = interval
    failed = record.outcomes[_plain(high, pin)][-1]
    while failed.status == "refused" and high - low > 1:
        middle = (low + high) // 2
        outcome = record.once(_plain(middle, pin))
        low, high = (middle, high) if outcome.status == "ok" else (low, middle)
        failed = failed if outcome.status == "ok" else outcome
    return f"limit: {failed.status} at {high} workers"


def _below(record: Record, num_workers: int, pin: bool) -> str:
    """The first guess was refused or failed: fewer, down to one."""
    failed = num_workers
    while failed > 1:
        half = failed // 2
        if record.once(_plain(half, pin)).status == "ok":
            return _between(record, (half, failed), pin)
        failed = half
    return f"limit: {record.outcomes[_plain(failed, pin)][-1].status} at {failed} workers"


def _plain(num_workers: int, pin: bool) -> Cell:
    return Cell(num_workers, PLAIN_PREFETCH, pin)
