"""What a window was and came to."""

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

Label = Literal["first_pass", "mixed", "warm"]


@dataclass(frozen=True)
class SteadyPart:
    """Of a window that consists of passes, what counts: see ``_passes``."""

    seconds: float
    steps: int
    samples: int
    counted: tuple[tuple[int, int], ...] = field(repr=False)
    """Of each pass the steps that count, begin and end by number in the window."""


@dataclass(frozen=True)
class WindowFacts:
    """What was measured."""

    warm_steps: int
    """Steps before the window, the first batch among them."""
    warm_s: float
    steps: int
    wall_s: float
    """From the window's first moment to its last; where it consists of passes, from the end of one to the end of another."""
    samples: int
    """Summed over the batches that came, not steps times B: batches may be partial."""
    num_passes: int
    """Whole passes the window consists of; 0 where it lies inside the first."""
    is_short: bool
    """Fewer steps or seconds count than the rule asks for."""
    restart_s: float
    """Of ``wall_s``: from the last step of each pass to the first of the next."""
    pass_samples: int | None
    """Samples of one whole pass; None where none ended. With ``drop_last`` and workers it may be well below the set."""
    queue_share: float
    """W·P / steps: at most this part of the batches can have been made before the window began."""
    drift: float | None
    """Rate of the second half over that of the first, less 1; None where the window is passes or has too few steps."""
    step_ends: tuple[float, ...] = field(repr=False)
    """Seconds from the window's first moment to the end of each step."""
    passes_before: int = 0
    """Whole passes that were read before the window began."""
    steady: SteadyPart | None = None
    """None where the window lies inside one pass, all of which then counts, and where no step of its passes could be counted."""
    ahead_share: float | None = 0.0
    """At most this part of the samples had been read before the window began, by a shuffle buffer; None where that cannot be told."""

    @property
    def is_looped(self) -> bool:
        """The set was smaller than warm-up and window: what was measured had been read before, and is warm."""
        return self.num_passes > 0

    @property
    def label(self) -> Label:
        """``first_pass``: every sample came for the first time, and can be cold; ``warm``: each had been read before in this trial;
        ``mixed``: some had.
        """
        if self.passes_before:
            return "warm"
        return "mixed" if self.is_looped else "first_pass"

    @property
    def throughput(self) -> float:
        """Samples per second that last: without restarts, and without batches that were made during them."""
        steady_s, _, samples = self._steady()
        return samples / steady_s

    @property
    def throughput_with_restarts(self) -> float | None:
        """Samples per second of whole passes, the time to begin each included; None where the window lies inside one pass."""
        return self.samples / self.wall_s if self.is_looped else None

    @property
    def step_s(self) -> float:
        """Seconds of a step, restarts left out."""
        steady_s, steps, _ = self._steady()
        return steady_s / steps

    @property
    def step_p99_ms(self) -> float | None:
        """Of the steps that count one in a hundred took longer; None where none is known by itself. No step has a restart in it."""
        begins, firsts = (0.0, *self.step_ends), set() if self.steady is None else {begin for begin, _ in self.steady.counted}
        took = sorted(end - begins[step] for step, end in enumerate(self.step_ends) if step not in firsts and self.counts(step))
        return took[-(-99 * len(took) // 100) - 1] * 1000 if took else None

    def counts(self, step: int) -> bool:
        """Whether a step, by number in the window, is one that the rate is made of."""
        if self.steady is None:
            return True
        place = bisect_right(self.steady.counted, step, key=itemgetter(0)) - 1
        return place >= 0 and step < self.steady.counted[place][1]

    def as_json(self) -> dict[str, Any]:
        names = ("warm_steps", "warm_s", "steps", "wall_s", "samples", "num_passes", "passes_before", "is_looped", "label", "is_short")
        more = ("restart_s", "throughput_with_restarts", "pass_samples", "queue_share", "ahead_share", "drift", "step_p99_ms")
        steady = dict(zip(("steady_s", "steady_steps", "steady_samples"), self._steady(), strict=True))
        return {name: getattr(self, name) for name in names + more} | steady

    def _steady(self) -> tuple[float, int, int]:
        """Seconds, steps and samples that count."""
        if self.steady is None:
            return self.wall_s, self.steps, self.samples
        return self.steady.seconds, self.steady.steps, self.steady.samples
