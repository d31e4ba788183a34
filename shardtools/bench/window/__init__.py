"""The measured window of a trial: which steps count, so that samples / wall is the rate that lasts.

Three things make a loader's first steps lie. The queue is full when reading begins: after a pause the first W·P batches come at once.
Step times repeat with period W, since each worker makes every W-th batch. And a set that is too small ends inside the window. So the
first 2·W·P batches (and one second) never count, the window is a whole multiple of W steps, and a set that ends too early is read again
and again, in whole passes from the end of one to the end of another, which the facts say: then the rate is of the steps in which the
loader is in full swing, and the rate with the time to begin each pass is told beside it.

Source: the rules for warm-up and steps are those of the measurement method in the documentation of ``bench``.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from shardtools.bench.window._facts import SteadyPart, WindowFacts
from shardtools.bench.window._passes import Steady
from shardtools.bench.window._rule import WindowRule
from shardtools.errors import UsageError

__all__ = ["Clock", "Hooks", "Window", "WindowFacts", "WindowRule", "measure"]

Batch = TypeVar("Batch")
Clock = Callable[[], float]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Hooks:
    """What the window calls; the clock in seconds."""

    clock: Clock = time.perf_counter
    sync: Callable[[], None] | None = None
    """Waits for the device: once before the window's first moment and once before its last, never between."""
    on_start: Callable[[], None] = _nothing
    """Just before the first moment; again where the window has to begin anew. Stage timers are cleared here."""


class Window:
    """Told of each consumed batch, it decides what counts.

    Made when the first batch has come, which is then the first one told. Times are read from the hooks' clock only.
    """

    def __init__(self, rule: WindowRule, hooks: Hooks | None = None) -> None:
        self._rule = rule
        self._hooks = hooks or Hooks()
        self._made = self._hooks.clock()
        self._start: float | None = None
        self._end: float | None = None
        self._warm_steps = 0
        self._ends: list[float] = []
        self._counts: list[int] = []
        self._passes_before = 0
        self._passes_within = 0
        self._delivered_before = 0
        self._steady = Steady(rule, self._moment_after)
        self._pass_batches = 0
        self._pass_count = 0
        self._pass_samples: int | None = None
        self._last_batches = 0
        self._boundary: float | None = None
        self._restart_s = 0.0

    def step(self, num_samples: int) -> bool:
        """A batch was consumed; False when the window is full."""
        now = self._hooks.clock()
        self._pass_batches += 1
        self._pass_count += num_samples
        if self._start is None:
            self._warm_steps += 1
            if self._passes_before == 0 and self._is_warm(now):
                self._begin()
            return True
        self._ends.append(now)
        self._counts.append(num_samples)
        if self._passes_before:
            self._steady.step(now, num_samples)
        if self._boundary is not None:
            self._restart_s += now - self._boundary
            self._boundary = None
        if self._passes_before == 0 and len(self._ends) % self._rule.period == 0 and self._is_enough(now):
            self._end = self._moment_after(now)
        return self._end is None

    def end_pass(self) -> bool:
        """The iterator is exhausted; False when the window is full, True when the set is to be read again."""
        if self._pass_batches == 0:
            raise UsageError("expected a loader with at least one batch a pass, got none: use a smaller batch size or drop_last=False")
        now = self._hooks.clock()
        self._pass_samples, self._last_batches, self._pass_batches, self._pass_count = self._pass_count, self._pass_batches, 0, 0
        if self._start is not None and self._passes_before == 0 and self._is_enough_for_short(now):
            self._end = self._moment_after(self._ends[-1])
            return False
        if self._start is not None and self._passes_before > 0:
            self._passes_within += 1
            self._steady.end_pass()
            if self._is_enough(now):
                self._end = self._moment_after(now)
                return False
        self._boundary = self._ends[-1] if self._ends else now
        if self._passes_before == 0 or self._start is None:
            self._passes_before += 1
            self._begin_at_boundary(now)
        return True

    def begin_pass(self) -> None:
        """Another pass was begun: its iterator is there, and its first batch has not been asked for."""
        if self._start is not None:
            self._steady.begin_pass(self._hooks.clock(), self._last_batches)

    def facts(self) -> WindowFacts:
        if self._start is None or self._end is None:
            raise RuntimeError("the window is not full yet")
        steps, wall_s = len(self._ends), self._end - self._start
        return WindowFacts(
            self._warm_steps,
            self._start - self._made,
            steps,
            wall_s,
            sum(self._counts),
            self._passes_within,
            is_short=self._num_counted() < self._rule.steps or self._counted_s(self._end) < self._rule.min_seconds,
            restart_s=self._restart_s,
            pass_samples=self._pass_samples,
            queue_share=self._rule.queue / steps,
            drift=self._drift(),
            step_ends=tuple(end - self._start for end in self._ends),
            passes_before=self._passes_before,
            steady=self._steady_part(),
            ahead_share=self._ahead_share(),
        )

    def _is_warm(self, now: float) -> bool:
        if self._warm_steps < self._rule.warm_steps:
            return False
        known = self._rule.num_batches if self._rule.stays_in_first_pass else None
        is_last_chance = known is not None and known - self._pass_batches <= self._rule.steps
        return is_last_chance or now - self._made >= self._rule.warm_seconds

    def _is_enough(self, now: float) -> bool:
        is_long = now - (self._start or 0.0) >= self._rule.max_seconds
        return is_long or (self._num_counted() >= self._rule.steps and self._counted_s(now) >= self._rule.min_seconds)

    def _num_counted(self) -> int:
        return self._steady.steps if self._passes_before else len(self._ends)

    def _counted_s(self, now: float) -> float:
        return self._steady.seconds if self._passes_before else now - (self._start or 0.0)

    def _steady_part(self) -> SteadyPart | None:
        """None also where whole passes, which never flatter, show a higher rate: sets of few batches whose first is long in coming."""
        found, wall_s = self._steady, (self._end or 0.0) - (self._start or 0.0)
        if not found.steps or found.samples * wall_s < sum(self._counts) * found.seconds:
            return None
        return SteadyPart(found.seconds, found.steps, found.samples, tuple(found.counted))

    def _ahead_share(self) -> float | None:
        """As if the buffer was full when the window began: then it held the next samples, and what was read is what came after them."""
        ahead, known, samples = self._rule.ahead_samples, self._rule.num_samples, sum(self._counts)
        if self._passes_before or not ahead:
            return 0.0
        if known is None or not samples:
            return None
        before = self._delivered_before
        return 1 - (min(known, before + samples + ahead) - min(known, before + ahead)) / samples

    def _is_enough_for_short(self, now: float) -> bool:
        is_long = self._rule.stays_in_first_pass or now - (self._start or 0.0) >= self._rule.min_seconds
        return is_long and len(self._ends) >= self._rule.fewest_steps

    def _begin_at_boundary(self, now: float) -> None:
        """What was measured of a first pass that ended too early becomes warm-up."""
        self._warm_steps += len(self._ends)
        self._start = None
        self._ends, self._counts, self._restart_s = [], [], 0.0
        if self._is_warm(now):
            self._begin()
            self._boundary = self._start

    def _begin(self) -> None:
        if self._hooks.sync is not None:
            self._hooks.sync()
        self._hooks.on_start()
        self._delivered_before = self._pass_count
        self._start = self._hooks.clock()

    def _moment_after(self, host: float) -> float:
        """The window's last moment: ``host``, when the host was done, or later, when the device is."""
        if self._hooks.sync is None:
            return host
        self._hooks.sync()
        return self._hooks.clock()

    def _drift(self) -> float | None:
        half = len(self._ends) // (2 * self._rule.period) * self._rule.period
        if self._passes_within or half == 0 or self._start is None:
            return None
        first_s = self._ends[half - 1] - self._start
        second_s = self._ends[-1] - self._ends[half - 1]
        if min(first_s, second_s) <= 0:
            return None
        return sum(self._counts[half:]) / second_s / (sum(self._counts[:half]) / first_s) - 1


def measure(
    batches: Iterator[Batch],
    again: Callable[[], Iterator[Batch]],
    count: Callable[[Batch], int],
    rule: WindowRule,
    hooks: Hooks | None = None,
) -> WindowFacts:
    """Draws batches until the window is full. Source of a loop that also computes: it tells a ``Window`` itself.

    ``batches`` is one pass from its first batch on; ``again`` begins another and returns when its iterator is there, before its first
    batch is. It is called only when the one before is exhausted, since a loader with persistent workers that is left early first waits
    for all batches under way and throws them away. ``count`` is the number of samples of a batch.

    Raises UsageError when a pass has no batch.
    """
    window = Window(rule, hooks)
    while True:
        for batch in batches:
            if not window.step(count(batch)):
                return window.facts()
        if not window.end_pass():
            return window.facts()
        batches = again()
        window.begin_pass()
