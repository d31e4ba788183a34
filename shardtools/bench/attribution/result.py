"""What attribution finds: a class, how sure that is, and the evidence as plain facts, whose words are made elsewhere."""

import math
import statistics
from dataclasses import dataclass, field
from typing import Any, Literal

from shardtools.bench.spec import Intervention
from shardtools.bench.statistics import t_interval
from shardtools.bench.trial import TrialResult

VerdictClass = Literal[
    "fed",
    "h2d_copy",
    "storage",
    "parse",
    "decode",
    "transform",
    "collate",
    "transfer",
    "shared_memory",
    "fd_limit",
    "contention",
    "balanced",
    "inconclusive",
]
LATE = 5.0
"""The slowest 1 % of waits over their mean: single batches come late."""
Confidence = Literal["high", "medium", "inconclusive"]

FACTS = {
    "au": "au, F, G: the device is that busy",
    "rates": "F, G, H, L (samples/s or None), is_with_consumer: what level 1 was told from",
    "loader_bound": "L, H (the consumer's rate, None without one): the loader is slower than what takes its batches",
    "copy": "H, G, exposed_share: of the step, what the copy costs; leaves, pinned (numbers of tensors of a batch); GBps (of the copies, "
    "None), ceiling_GBps (that memory of this kind was probed to give, None)",
    "head_of_line": "num_workers: batches are handed out in order, so one that is late holds up those that are ready",
    "launch": "mean_ms, p99_ms: of the host's time to launch a step",
    "contention": "F, bound: the loop is below both of its parts, L and H; wait_p99_over_mean or None",
    "marginal": "au: neither the loader nor the copy alone explains it",
    "intervention": "stage, ratio, low, high (None where nothing tells them), ci_by (repeats, baselines: how those differ, or None), "
    "num_baselines, n, baseline, intervened (medians, samples/s)",
    "runner_up": "stage, ratio",
    "co_bottleneck": "stages, ratios: removing either gains about as much",
    "no_stage": "stage, ratio: the largest gain there is, too small to blame",
    "unsure": "stage, ratio, low, high, ci_by, num_baselines, n: the interval leaves open whether there is a gain, or which is first",
    "scattered": "stage, ratio, share (of the workers' time, None), slowest, fastest (baselines, samples/s): in place of unsure, where the "
    "gain is no more than baselines differ by, or more than the share can explain",
    "storage_hidden": "reason: warm (asked for), in_memory (the files cannot be cold), looped (data too small), "
    "no_copy (too large to be copied here): storage was not judged",
    "reader": "share, parse_share, read_share: of the workers' time, by timers; blocked_share: of share; ratio: the gain that implies",
    "timer": "stage, share (of the workers' time, by timers), blocked_share (of that, not on a processor)",
    "disk": "MBps, iops, ceiling_MBps, ceiling_iops, share (the larger of both): of the probed ceiling",
    "blocked": "share: of the workers' time, waiting for storage",
    "pressure": "resource, share: of the window, some task was held up by it",
    "cpu": "worker_share (of W processors), host_share (of all the trial may use), others_share (of those, by other programs; None)",
    "throttled": "share: of scheduler periods, the CPU quota held the trial up",
    "transfer": "utilisation (of the workers, None), floor_share (of a step, to receive a batch that lies ready; None)",
    "capped": "before, at, wanted ({num_workers, prefetch_factor}), rate (of at), last_gain (at over before), most_gain (wanted over at, "
    "at most), wanted_bytes (of /dev/shm, None), free_bytes (None), is_seen (else foreseen): wanted has no room in /dev/shm",
    "shm": "peak_bytes, size_bytes, share",
    "descriptors": "peak, limit, tensors (of a batch)",
    "status": "status, message: how a trial ended",
    "failed": "stage, status, message: the trial without that stage's cost could not be had",
    "budget": "seconds (planned), spent, rounds (each stage once): time was up before it could be decided",
    "trials": "count, seconds: what this took",
}
"""Every kind of fact, and its values. Rates are samples a second, shares 0 to 1."""


@dataclass(frozen=True)
class Fact:
    """One piece of evidence: ``kind`` is a key of ``FACTS``, which names the values."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ablation:
    """What the loader gains when one cost is taken away, each trial against a baseline beside it."""

    stage: Intervention
    rates: tuple[tuple[float, float], ...]
    """Samples a second, (baseline, intervened), of each repeat in the order they ran."""

    @property
    def n(self) -> int:
        return len(self.rates)

    @property
    def ratio(self) -> float:
        """Median over repeats."""
        return math.exp(statistics.median(self.log_ratios))

    @property
    def log_ratios(self) -> list[float]:
        return [math.log(intervened / baseline) for baseline, intervened in self.rates]

    @property
    def ci(self) -> tuple[float, float] | None:
        """95 %, of Student's t on log ratios, so it is centred on their mean; None for one repeat."""
        low_high = t_interval(self.log_ratios)
        return None if low_high is None else (math.exp(low_high[0]), math.exp(low_high[1]))


@dataclass(frozen=True)
class Gain:
    """What taking the cost away would buy, at most."""

    ratio: float
    ci: tuple[float, float] | None
    then: VerdictClass | None
    """What binds next; None where that is not known."""

    def as_json(self) -> dict[str, Any]:
        return {"ratio": self.ratio, "ci": None if self.ci is None else list(self.ci), "then": self.then}


@dataclass(frozen=True)
class Attribution:
    """What limits one side at one setting."""

    verdict: VerdictClass
    stage: str | None
    """The stage the verdict names, by its name among the timers or interventions; None where it names none."""
    confidence: Confidence
    """``high``: intervention and counters agree; ``medium``: the intervention alone, or timers alone for ``parse``."""
    rates: dict[str, float | None]
    """F, G, H, L in samples a second. Without a consumer there is L alone."""
    facts: tuple[Fact, ...]
    gain: Gain | None
    ablation: tuple[Ablation, ...]
    trials: tuple[TrialResult, ...]
    """All that were run for this, in order."""
    seconds: float

    def fact(self, kind: str) -> Fact | None:
        """The first of its kind."""
        return next((fact for fact in self.facts if fact.kind == kind), None)
