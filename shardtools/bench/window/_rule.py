"""How long warm-up and window of a trial are."""

from dataclasses import dataclass

from shardtools.bench.spec import Settings

_FEWEST_STEPS = 10


@dataclass(frozen=True)
class WindowRule:
    """How long the warm-up and the window are."""

    num_workers: int
    prefetch_factor: int
    min_steps: int = 50
    min_seconds: float = 5.0
    warm_seconds: float = 1.0
    max_seconds: float = 30.0
    """The window ends at the next multiple of W after this, however few its steps: a slow loader need not be measured for minutes."""
    stays_in_first_pass: bool = False
    """For a cold cache, which only the first pass meets: the window is rather short than warm."""
    num_batches: int | None = None
    """Of one pass, where that is known: the second of warm-up is then cut where it would eat the first pass."""
    num_samples: int | None = None
    """Of one pass, where that is known."""
    ahead_samples: int = 0
    """What the reader's own buffers hold beyond the queue, over all workers: samples are read long before they are delivered."""

    @classmethod
    def of(cls, settings: Settings, min_seconds: float = 5.0, min_steps: int = 50) -> "WindowRule":
        return cls(settings.num_workers, settings.prefetch_factor, min_steps, min_seconds)

    @property
    def period(self) -> int:
        """After so many steps their times repeat."""
        return max(1, self.num_workers)

    @property
    def queue(self) -> int:
        """Batches that may lie ready before the window begins: W·P."""
        return self.num_workers * self.prefetch_factor

    @property
    def warm_steps(self) -> int:
        """At least so many steps warm up: 2·W·P."""
        return 2 * self.queue

    @property
    def steps(self) -> int:
        """At least so many are measured: max(50, 10·W·P), rounded up to a multiple of W."""
        return -(-max(self.min_steps, 10 * self.queue) // self.period) * self.period

    @property
    def fewest_steps(self) -> int:
        """Below this even a short window is none."""
        return max(_FEWEST_STEPS, self.warm_steps)
