"""What a window was and came to."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WindowFacts:
    """What was measured."""

    warm_steps: int
    """Steps before the window, the first batch among them."""
    warm_s: float
    steps: int
    wall_s: float
    samples: int
    """Summed over the batches that came, not steps times B: batches may be partial."""
    num_passes: int
    """Whole passes the window consists of; 0 where it lies inside the first."""
    is_short: bool
    """Fewer steps or seconds than the rule asks for."""
    restart_s: float
    """Of ``wall_s``: from the end of each pass to the first batch of the next."""
    pass_samples: int | None
    """Samples of one whole pass; None where none ended. With ``drop_last`` and workers it may be well below the set."""
    queue_share: float
    """W·P / steps: at most this part of the batches can have been made before the window began."""
    drift: float | None
    """Rate of the second half over that of the first, less 1; None where the window is passes or has too few steps."""
    step_ends: tuple[float, ...] = field(repr=False)
    """Seconds from the window's first moment to the end of each step."""

    @property
    def is_looped(self) -> bool:
        """The set was smaller than warm-up and window: what was measured had been read before, and is warm."""
        return self.num_passes > 0

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.samples / self.wall_s

    def as_json(self) -> dict[str, Any]:
        names = ("warm_steps", "warm_s", "steps", "wall_s", "samples", "num_passes", "is_looped", "is_short")
        more = ("restart_s", "pass_samples", "queue_share", "drift")
        return {name: getattr(self, name) for name in names + more}
