"""Which steps count in a pass that is one of many: those between what a restart prepared and what the end leaves idle.

While a loader is begun again its workers fill the queue: of the steps after, up to W·P take batches that were made in the pause, and with
the pause taken out of the time they would flatter the rate. So as in the first pass they are drained, 2·W·P steps or W·P at least, and of
the rest a whole multiple of W steps counts. Of a pass too short for that, or whose reader reads far ahead of what it delivers, so that
its last steps are made of what its first ones read, all steps count from the moment the workers begin: nothing of their work is left
out, and a consumer that waits for the first batch counts as waiting.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shardtools.bench.window._rule import WindowRule


@dataclass(frozen=True)
class PassPlan:
    """Steps of a pass by number, ``begin`` included and ``end`` not."""

    begin: int
    """0: from the moment the pass was begun."""
    end: int

    @classmethod
    def of(cls, rule: WindowRule, num_batches: int) -> "PassPlan":
        """For a pass that will have so many batches; at least half of it counts."""
        for head in (rule.warm_steps, rule.queue):
            if head and not rule.ahead_samples and num_batches >= max(2 * head, head + rule.period):
                return cls(head, num_batches - (num_batches - head) % rule.period)
        return cls(0, num_batches - num_batches % rule.period or num_batches)


class Steady:
    """What counts of passes that are read one after the other, added up.

    ``moment_after`` makes of the time at which the host was done that at which the device is.
    """

    def __init__(self, rule: WindowRule, moment_after: Callable[[float], float]) -> None:
        self._rule = rule
        self._moment_after = moment_after
        self._plan = PassPlan(0, 0)
        self._since: float | None = None
        self._step = 0
        self._samples = 0
        self._last: tuple[float, int, int] | None = None
        """Moment, steps and samples at the last whole multiple of W: for a pass that ends before its plan does."""
        self.seconds = 0.0
        self.steps = 0
        self.samples = 0
        self.counted: list[tuple[int, int]] = []
        """Of each pass the steps that count, by number in the window."""
        self._first_step = 0

    def begin_pass(self, now: float, num_batches: int) -> None:
        """``num_batches``: of the pass before."""
        self._plan = PassPlan.of(self._rule, num_batches)
        self._since = now if self._plan.begin == 0 else None
        self._first_step += self._step
        self._step = self._samples = 0
        self._last = None

    def step(self, now: float, num_samples: int) -> None:
        number, plan = self._step, self._plan
        self._step += 1
        if self._step == plan.begin:
            self._since = self._moment_after(now)
        if not plan.begin <= number < plan.end:
            return
        self._samples += num_samples
        num_steps = self._step - plan.begin
        if self._step == plan.end:
            self._last = (self._moment_after(now), num_steps, self._samples)
        elif num_steps % self._rule.period == 0:
            self._last = (now, num_steps, self._samples)

    def end_pass(self) -> None:
        if self._last is None or self._since is None:
            return
        end, steps, samples = self._last
        self.seconds += end - self._since
        self.steps += steps
        self.samples += samples
        begin = self._first_step + self._plan.begin
        self.counted.append((begin, begin + steps))
