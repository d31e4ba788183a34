"""What is searched: settings as points of a space, and what came of trying one."""

from dataclasses import dataclass
from typing import Literal

from shardtools.bench.spec import Settings

Status = Literal["ok", "refused", "oom_shm", "fd", "hang", "error"]

PLAIN_PREFETCH = 2
"""torch's own default; workers are searched with it, since a longer queue buffers variance and does not raise the mean."""


@dataclass(frozen=True, order=True)
class Cell:
    """One setting. W = 0 has no queue and no workers to keep: its other values are those of ``of``."""

    num_workers: int
    prefetch_factor: int = PLAIN_PREFETCH
    pin_memory: bool = False
    persistent_workers: bool = True

    @classmethod
    def of(cls, settings: Settings) -> "Cell":
        """Settings that torch treats alike become the same cell."""
        if settings.num_workers == 0:
            return cls(0, PLAIN_PREFETCH, settings.pin_memory, False)
        return cls(settings.num_workers, settings.prefetch_factor, settings.pin_memory, settings.persistent_workers)


@dataclass(frozen=True)
class Outcome:
    """What one try of a cell came to."""

    status: Status
    rate: float | None = None
    """Samples a second; None unless ``ok``."""
    message: str = ""
    wait_p99_ms: float | None = None
    mean_step_ms: float | None = None
    epoch2_s: float | None = None
    """From ``iter()`` to the first batch of a second epoch."""
    device_rate: float | None = None
    """G: what takes the batches, without a loader; None where the loader is only drained."""
    au: float | None = None
    """Rate over G, 0 to 1."""
    is_trial: bool = True
    """False: refused beforehand, and nothing ran."""


@dataclass(frozen=True)
class Space:
    """Which settings may be tried."""

    max_workers: int
    """Of twice the processors and the number of shards the smaller one."""
    cap: str
    """What the limit is, in words: ``2 x 8 processors``."""
    cpus: int
    prefetch_factors: tuple[int, ...] = (2, 4, 8)
    has_pinning: bool = False
    """On CUDA; elsewhere ``pin_memory`` does nothing, and the axis collapses."""
    num_repeats: int = 3
    """Trials of every cell of the full grid, and of a cell that something is told from."""
    most_repeats: int = 7
    """Trials of the cells the knee hangs on: the best ones, and those near 95 % of them."""

    def workers(self) -> list[int]:
        """0, 1, 2, 4, ... and the limit itself."""
        doubled = [0]
        while doubled[-1] < self.max_workers:
            doubled.append(min(max(1, 2 * doubled[-1]), self.max_workers))
        return doubled

    def cells(self) -> list[Cell]:
        """The full grid: W x P x pin x persistent, W = 0 once for each pin."""
        found = []
        for pin in (False, True) if self.has_pinning else (False,):
            for num_workers in self.workers():
                if num_workers == 0:
                    found.append(Cell(0, PLAIN_PREFETCH, pin, False))
                    continue
                found += [Cell(num_workers, p, pin, persists) for p in self.prefetch_factors for persists in (True, False)]
        return found

    @property
    def full_grid_trials(self) -> int:
        return len(self.cells()) * self.num_repeats
