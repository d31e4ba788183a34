"""The worlds a delivery is proved for: world sizes times DataLoader workers."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from shardtools.units import plural
from shardtools.verify.options import DeliveryOptions

_WORLD_SIZES = (1, 2, 4, 8)
_NUM_WORKERS = (0, 1, 2, 4, 8)
_LIVE_WORLD_SIZES = (1, 2)
_LIVE_NUM_WORKERS = (2,)


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
