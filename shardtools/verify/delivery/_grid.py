"""The worlds a delivery is proved for: world sizes times DataLoader workers."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from shardtools.errors import UsageError
from shardtools.units import plural
from shardtools.verify.options import DeliveryOptions

_WORLD_SIZES = (1, 2, 4, 8)
_NUM_WORKERS = (0, 1, 2, 4, 8)
_LIVE_WORLD_SIZES = (1, 2)
_LIVE_NUM_WORKERS = (2,)


_MOST_RANKS = 1_000_000
_MOST_WORKERS = 10_000
_MOST_CELLS = 10_000
_MOST_LIVE_RANKS = 64
_MOST_LIVE_CELLS = 64
_MOST_LIVE_PROCESSES = 1024
"""Of one cell."""


class Cell(NamedTuple):
    """One world. Without workers (0) each rank reads in its own process, as one reader."""

    world_size: int
    num_workers: int

    @property
    def num_readers(self) -> int:
        """Processes on each rank that read."""
        return max(self.num_workers, 1)

    def __str__(self) -> str:
        return f"{plural(self.world_size, 'rank')} x {plural(self.num_workers, 'worker')}"


def arithmetic_cells(options: DeliveryOptions) -> list[Cell]:
    return _cells(options.world_sizes or _WORLD_SIZES, options.num_workers or _NUM_WORKERS)


def live_cells(options: DeliveryOptions) -> list[Cell]:
    return _cells(options.world_sizes or _LIVE_WORLD_SIZES, options.num_workers or _LIVE_NUM_WORKERS)


def refuse_unbounded(options: DeliveryOptions) -> None:
    """Raises UsageError for worlds that no job has, and for more of them than can be looked at."""
    sizes, workers = options.world_sizes or (), options.num_workers or ()
    _refuse_above("world sizes", max(sizes, default=0), _MOST_RANKS, "correct --world-size")
    _refuse_above("numbers of workers", max(workers, default=0), _MOST_WORKERS, "correct --num-workers")
    num_cells = len(set(sizes or _WORLD_SIZES)) * len(set(workers or _NUM_WORKERS))
    _refuse_above("numbers of worlds (world sizes times numbers of workers)", num_cells, _MOST_CELLS, "name fewer at a time")
    if options.is_live:
        cells = live_cells(options)
        _refuse_above("numbers of worlds for a live run", len(cells), _MOST_LIVE_CELLS, "name fewer at a time")
        _refuse_above("world sizes for a live run", max(world_sizes(cells)), _MOST_LIVE_RANKS, "leave larger ones to --no-dup")
        num_processes = max(cell.world_size * (cell.num_workers + 1) for cell in cells)
        _refuse_above("numbers of processes for a live run", num_processes, _MOST_LIVE_PROCESSES, "name fewer ranks or workers")


def _refuse_above(what: str, number: int, most: int, remedy: str) -> None:
    if number > most:
        raise UsageError(f"expected {what} of at most {most:,}, got {number:,}; {remedy}")


def world_sizes(cells: Iterable[Cell]) -> list[int]:
    return sorted({cell.world_size for cell in cells})


def sizes_listed(sizes: Sequence[int]) -> str:
    return f"world size{'' if len(sizes) == 1 else 's'} {listed(sizes)}"


def listed(values: Sequence[object], most: int = 12) -> str:
    """``1, 2 and 4``; of more than ``most`` values the first, and how many more there are."""
    texts = [str(value) for value in values]
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def _cells(sizes: Iterable[int], workers: Iterable[int]) -> list[Cell]:
    return [Cell(*pair) for pair in product(sorted(set(sizes)), sorted(set(workers)))]
