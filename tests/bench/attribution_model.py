"""A loader as a model: stages in series in each worker, a main process that receives batches, a consumer; and trials of it with noise.

Written against the definitions alone: rate = min(W / sum of stage times, cores / sum of their CPU times, 1 / time to receive a batch).
"""

import math
import random
import statistics
from dataclasses import dataclass, field, replace
from typing import Any

from shardtools.bench.attribution import Ablation
from shardtools.bench.spec import CacheState, Consumer, Layout, Settings, TrialSpec, Workload
from shardtools.bench.trial import TrialResult

STAGES = ("storage", "parse", "decode", "transform", "collate")
BATCH_SIZE = 32


@dataclass
class Model:
    """Costs in milliseconds a sample; ``receive`` a sample in the main process, most of which the tensors of its batch cause."""

    costs: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.1))
    waits: frozenset[str] = frozenset({"storage"})
    """Stages that take no processor."""
    receive: float = 0.005
    num_workers: int = 2
    cores: float = 4.0
    step: float | None = None
    """Milliseconds a sample of the consumer on a batch that is there; None: no consumer."""
    copy: float = 0.0
    jitter: float = 1.0
    """The loop with its consumer reaches this part of what its parts allow."""
    noise: float = 0.03
    drift: float = 0.0
    """The machine is so much slower with each trial."""
    seed: int = 0
    num_trials: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def spec(self, cache: CacheState = "cold-data") -> TrialSpec:
        consumer = Consumer() if self.step is None else Consumer("sim", step_ms=self.step * BATCH_SIZE, device="sim")
        workload = Workload(BATCH_SIZE, decode="x:decode", transform="x:transform")
        return TrialSpec(Layout("data", "files", "torch"), workload, Settings(self.num_workers), consumer, cache=cache)

    def clock(self) -> float:
        """As if a trial took 4 seconds."""
        return 4.0 * self.num_trials

    def run(self, spec: TrialSpec, cache: CacheState) -> TrialResult:
        self.num_trials += 1
        costs = dict(self.costs)
        if cache == "warm":
            costs["storage"] *= 0.02
        receive = self.receive
        if spec.intervention in ("decode", "transform", "collate"):
            costs[spec.intervention] *= 0.02
        if spec.intervention == "collate" and self.num_workers:
            receive *= 0.7  # its batch lies in shared memory already
        if spec.intervention == "transfer":
            receive *= 0.02
        loader = self._loader(costs, receive)
        slow = math.exp(self._random.gauss(0.0, self.noise) - self.drift * self.num_trials)
        return TrialResult(spec, "ok", "", self._found(spec, loader * slow, slow, costs), self._watched(costs, loader))

    def _loader(self, costs: dict[str, float], receive: float) -> float:
        """Samples a second."""
        workers = max(1, self.num_workers)
        cpu = sum(cost for name, cost in costs.items() if name not in self.waits)
        if self.num_workers == 0:
            return 1000 / (sum(costs.values()) + receive)
        return 1000 * min(workers / sum(costs.values()), self.cores / max(cpu, 1e-9), 1 / receive)

    def _found(self, spec: TrialSpec, loader: float, slow: float, costs: dict[str, float]) -> dict[str, Any]:
        resident = copied = None
        rate = loader
        rates: dict[str, float | None] = {"F": None, "G": None, "H": None, "L": loader}
        if spec.consumer.kind != "none":
            assert self.step is not None
            resident, copied = 1000 / self.step, 1000 / (self.step + self.copy)
            resident, copied = (value * math.exp(self._random.gauss(0.0, self.noise / 3)) for value in (resident, copied))
            rate = min(loader, copied) * self.jitter
            rates = {"F": rate, "G": resident, "H": copied, "L": None}
        wall_s = 1.2
        stages = {
            name: {"wall_s": cost / 1000 * rate * wall_s, "blocked_s": cost / 1000 * rate * wall_s if name in self.waits else 0.0}
            for name, cost in costs.items()
        }
        return {
            "throughput": rate,
            "rates": rates,
            "window": {"wall_s": wall_s, "is_looped": False},
            "stages": stages if spec.mode == "timeline" else None,
            "step_ms": 1000 * BATCH_SIZE / rate,
            "ipc_floor_ms": self.receive * BATCH_SIZE if spec.mode == "timeline" else None,
            "batch": {"tensors": 1},
            "pinning": {"num_tensors": 1, "num_pinned": 1},
            "shares": {"wait": 0.01},
            "steps": {"data_wait_ms": None},
        }

    def _watched(self, costs: dict[str, float], loader: float) -> dict[str, Any]:
        cpu = loader / 1000 * sum(cost for name, cost in costs.items() if name not in self.waits)
        return {"counters": {"cpu_util": cpu, "cpu_util_share": cpu / self.cores, "psi_io_share": 0.0}, "peaks": {"shm": 0, "fd": 20}}


def seconds_per_sample(one: Ablation) -> float:
    """Of the loader's time for a sample, what the stage costs: the median. Workers share the work, so each spends W times as much."""
    return statistics.median(1 / baseline - 1 / intervened for baseline, intervened in one.rates)


def planted(stage: str, seed: int, **more: Any) -> Model:
    """``stage`` costs 2.5 to 6 times what the next one does."""
    chance = random.Random(seed)
    costs = {name: chance.uniform(0.02, 0.1) for name in STAGES}
    dose = chance.uniform(2.5, 6.0)
    model = Model(costs, noise=chance.uniform(0.01, 0.05), num_workers=chance.choice((1, 2, 4)), cores=8.0, seed=seed)
    for name, value in more.items():
        model = replace(model, **{name: value})
    if stage == "transfer":
        rate_of_workers = 1000 * model.num_workers / sum(costs.values())
        model.receive = 1000 * dose / rate_of_workers
    else:
        costs[stage] = dose * max(cost for name, cost in costs.items() if name != stage)
    return model
