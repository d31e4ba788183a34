"""Level 2 as trials: each without one cost, in random order, beside a baseline of its own."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from shardtools.bench.attribution.context import Context, Run
from shardtools.bench.attribution.result import Ablation, Fact
from shardtools.bench.spec import CacheState, Consumer, Intervention, TrialSpec
from shardtools.bench.trial import TrialResult

_MIN_STEPS = 10
_LONGEST = 1.6
"""Times the window: a slow loader is measured over fewer steps."""
_MOST_TRIES = 2
_USUAL_TRIALS = 13
"""Where one stage stands out."""

Clock = Callable[[], float]


def drained(spec: TrialSpec, context: Context) -> TrialSpec:
    """The loader alone, in a short trial. A real device stays: what pins batches for it is part of the loader."""
    seconds = context.window_seconds
    consumer = Consumer(device="cuda" if spec.consumer.device == "cuda" else "cpu")
    return replace(spec, consumer=consumer, mode="throughput", min_seconds=seconds, max_seconds=_LONGEST * seconds, min_steps=_MIN_STEPS)


@dataclass
class Ablations:
    """What is measured of one loader, and what could not be."""

    base: TrialSpec
    """Drained."""
    run: Run
    context: Context
    began: float
    clock: Clock = time.monotonic
    trials: list[TrialResult] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    failure: TrialResult | None = None
    """A baseline that failed: nothing more can be told."""
    _rates: dict[Intervention, list[tuple[float, float]]] = field(default_factory=dict)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.context.seed)

    def found(self) -> list[Ablation]:
        return [Ablation(stage, tuple(pairs)) for stage, pairs in self._rates.items() if pairs]

    def round(self, stages: Sequence[Intervention]) -> None:
        """Every stage once. Two stages share the baseline that runs between them; which they are is drawn anew each round."""
        order = list(stages)
        self._random.shuffle(order)
        for pair in (order[i : i + 2] for i in range(0, len(order), 2)):
            if self.failure is not None:
                return
            self._group(pair)

    def has_time(self, num_stages: int) -> bool:
        """For a round of so many, judged by how long trials took so far."""
        spent = self.clock() - self.began
        num_trials = num_stages + (num_stages + 1) // 2
        return spent + num_trials * spent / max(1, len(self.trials)) <= self.context.seconds

    def trial(self, spec: TrialSpec, cache: CacheState, what: str) -> TrialResult:
        result = self.run(spec, cache)
        self.trials.append(result)
        rate = f"{result.throughput:,.0f} samples/s" if result.throughput else f"{result.status}: {result.message}"
        self.context.say(f"attribution, {what}: {rate}; {self._to_go()}")
        return result

    def _to_go(self) -> str:
        """As long as a usual attribution still takes, by the trials so far; beyond that as long as it may take at most."""
        spent, num_done = self.clock() - self.began, len(self.trials)
        left = max(0.0, self.context.seconds - spent)
        usual = (_USUAL_TRIALS - num_done) * spent / num_done
        if left < 1:
            return "nearly done"
        return f"about {min(usual, left):.0f} s to go" if usual > 0 else f"at most {left:.0f} s to go"

    def baseline(self) -> TrialResult | None:
        """None where it failed, and failed again unless the first time said it all."""
        for _ in range(_MOST_TRIES):
            result = self.trial(self.base, self.base.cache, "as it is")
            if result.throughput:
                return result
            if result.status != "error":
                break
        self.failure = result
        return None

    def _group(self, pair: Sequence[Intervention]) -> None:
        """``i B i``, ``i B`` or ``B i``."""
        baseline, rates = None, dict[Intervention, float]()
        for stage in self._around(pair):
            if stage is None:
                baseline = self.baseline()
                if baseline is None:
                    return
            elif (rate := self._without(stage)) is not None:
                rates[stage] = rate
        assert baseline is not None
        assert baseline.throughput is not None
        for stage, rate in rates.items():
            self._rates.setdefault(stage, []).append((baseline.throughput, rate))

    def _around(self, pair: Sequence[Intervention]) -> Iterator[Intervention | None]:
        """None stands for the baseline."""
        order: list[Intervention | None] = [pair[0], None, *pair[1:]]
        if len(pair) == 1 and self._random.random() < 0.5:
            order.reverse()
        return iter(order)

    def _without(self, stage: Intervention) -> float | None:
        cache: CacheState = "warm" if stage == "storage" else self.base.cache
        result = self.trial(replace(self.base, intervention=stage, cache=cache), cache, f"without {stage}")
        label = result.watched.get("cache_label", "warm")
        status, message = result.status, result.message
        if result.throughput and stage == "storage" and label != "warm":
            status, message = label, "the page cache did not hold all of the data"
        elif result.throughput:
            return result.throughput
        self.facts.append(Fact("failed", {"stage": stage, "status": status, "message": message}))
        return None
