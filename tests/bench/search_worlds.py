"""Machines for the replays of the search: curves of throughput whose best cell is known, and grids of real trials."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shardtools.bench.search import Cell, Outcome, Record, Space

RECORDED = Path(__file__).parent / "recorded" / "grids" / "two_cpus.json"


class FakeClock:
    """Seconds that pass when a trial is run."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class World:
    """Costs of a batch in seconds, and what bounds the loader beside them."""

    cpu_s: float
    blocked_s: float
    main_s: float
    """In the main process, for each batch that comes from a worker."""
    cpus: int
    storage_rate: float = math.inf
    """Batches a second."""
    device_rate: float | None = None
    queue_gain: float = 0.0
    """What an endless queue adds to the rate."""
    crowding: float = 0.0
    """Lost for each worker above the processors."""
    softness: float = 6.0

    def rate(self, cell: Cell) -> float:
        """Batches a second, without noise."""
        work = self.cpu_s + self.blocked_s
        consume = 1 / self.device_rate if self.device_rate else 0.0
        if cell.num_workers == 0:
            return min(1 / (work + consume), self.storage_rate)
        bounds = [cell.num_workers / work, self.cpus / (self.cpu_s + self.main_s), self.storage_rate, 1 / (self.main_s + consume + 1e-12)]
        soft = sum(bound**-self.softness for bound in bounds if math.isfinite(bound)) ** (-1 / self.softness)
        lost = (1 - self.crowding) ** max(0, cell.num_workers - self.cpus)
        return float(soft * lost * (1 + self.queue_gain * (1 - 2 / cell.prefetch_factor)))


def drawn_world(random: np.random.Generator) -> tuple[World, Space]:
    """Of any kind: bound by processors, storage, the main process, or a device; with few or many processors and shards."""
    cpus = int(random.choice([2, 4, 6, 8, 12, 16]))
    cpu_s, blocked_s, main_s = (10 ** random.uniform(*bounds) for bounds in ((-4, -1), (-4, -0.5), (-5, -2)))
    alone = 1 / (cpu_s + blocked_s)
    world = World(
        cpu_s,
        blocked_s,
        main_s,
        cpus,
        alone * random.uniform(0.5, 20) if random.random() < 0.4 else math.inf,
        alone * random.uniform(0.5, 12) if random.random() < 0.4 else None,
        random.uniform(0, 0.15) if random.random() < 0.4 else 0.0,
        random.uniform(0, 0.02),
        random.uniform(3, 10),
    )
    shards = int(random.integers(1, 64)) if random.random() < 0.3 else 1000
    cap = min(2 * cpus, shards)
    return world, Space(cap, f"{cap} workers", cpus)


KINDS = ("plateau", "peak", "cliff", "slope", "no workers", "steps")


@dataclass(frozen=True)
class Surface:
    """Rates without a model of a machine behind them: of each W, and what each P makes of it there."""

    kind: str
    by_workers: tuple[float, ...]
    by_queue: tuple[dict[int, float], ...]

    def rate(self, cell: Cell) -> float:
        return self.by_workers[cell.num_workers] * self.by_queue[cell.num_workers][cell.prefetch_factor]


def drawn_surface(random: np.random.Generator) -> tuple[Surface, Space]:
    """A plateau from any W on, a fall beyond the processors or the best W, a cliff anywhere, a slope up to the limit, steps, or workers
    that bring nothing. In half of them a longer queue gains or loses, everywhere alike or with the sign turned beyond the processors."""
    cpus = int(random.choice([1, 2, 3, 4, 6, 8, 12, 16, 24]))
    cap = min(2 * cpus, int(random.integers(1, 32)) if random.random() < 0.3 else 1000)
    kind, workers = str(random.choice(KINDS)), np.arange(cap + 1)
    each, top = random.uniform(0.6, 1.05), int(random.integers(1, 2 * cpus + 1))
    rates = each * np.minimum(workers, top).astype(float)
    if kind == "slope":
        rates = each * workers ** random.uniform(0.1, 1.0)
    if kind == "steps":
        rates[1:] = each * np.cumsum(np.where(random.random(cap) < 0.5, 1.0, random.uniform(0, 0.3)))
    if kind == "peak":
        rates *= (1 - random.uniform(0.01, 0.15)) ** np.maximum(0, workers - min(cpus, top))
    if kind == "cliff":
        rates[int(random.integers(1, cap + 1)) :] *= random.uniform(0.3, 0.9)
    if kind == "no workers":
        rates *= random.uniform(0.02, 1.2) / rates.max()
    rates[0] = 1.0
    gains = np.cumprod([1.0, 1 + random.uniform(-0.03, 0.12), 1 + random.uniform(-0.03, 0.08)])
    queue = str(random.choice(["none", "none", "alike", "turned"]))
    signs = [0.0 if queue == "none" or w == 0 else -0.5 if queue == "turned" and w > cpus else 1.0 for w in workers]
    by_queue = tuple({factor: float(gain**sign) for factor, gain in zip((2, 4, 8), gains, strict=True)} for sign in signs)
    return Surface(kind, tuple(map(float, rates)), by_queue), Space(cap, f"{cap} workers", cpus)


def simulated(world: World, noise: float, random: np.random.Generator, clock: FakeClock) -> Callable[[Cell], Outcome]:
    def run(cell: Cell) -> Outcome:
        clock.now += 4.0
        rate = world.rate(cell) * math.exp(random.normal(0, noise))
        au = None if world.device_rate is None else rate / world.device_rate
        return Outcome("ok", rate, device_rate=world.device_rate, au=au, epoch2_s=0.01 if cell.persistent_workers else 0.2)

    return run


@dataclass(frozen=True)
class Grid:
    """Real trials of one workload: rates of every cell, in the order they were measured."""

    name: str
    space: Space
    rates: dict[Cell, list[float]]
    epoch2_s: dict[Cell, float]

    def run(self, random: np.random.Generator) -> Callable[[Cell], Outcome]:
        """Each trial is one of those that were measured of its cell."""

        def run(cell: Cell) -> Outcome:
            return Outcome("ok", float(random.choice(self.trials(cell))), epoch2_s=self.epoch2_s.get(cell))

        return run

    @property
    def noise(self) -> float:
        """Standard deviation of trials of one cell, as a logarithm; of cells that are near the best, as others decide nothing."""
        best = max(self.median(cell) for cell in self.rates)
        near = [rates for cell, rates in self.rates.items() if self.median(cell) >= 0.8 * best]
        return float(np.sqrt(np.mean([np.var(np.log(rates), ddof=1) for rates in near])))

    def trials(self, cell: Cell) -> list[float]:
        """Over both ways to begin an epoch, which do not matter inside one."""
        alike = replace(cell, persistent_workers=True)
        return [rate for other, rates in self.rates.items() if replace(other, persistent_workers=True) == alike for rate in rates]

    def median(self, cell: Cell) -> float:
        return float(np.median(self.trials(cell)))


def recorded_grids() -> list[Grid]:
    if not RECORDED.exists():
        return []
    found = []
    for name, data in json.loads(RECORDED.read_text("utf-8"))["workloads"].items():
        cells = [(Cell(*cell["setting"]), cell) for cell in data["cells"]]
        rates = {setting: cell["rates"] for setting, cell in cells}
        starts = {setting: cell["epoch2_s"] for setting, cell in cells if cell["epoch2_s"] is not None}
        space = Space(data["max_workers"], "2 x processors", data["cpus"], num_repeats=data["num_repeats"])
        found.append(Grid(name, space, rates, starts))
    return found


def record_of(run: Callable[[Cell], Outcome], seconds: float = math.inf, clock: FakeClock | None = None) -> Record:
    return Record(run, seconds, clock or FakeClock())
