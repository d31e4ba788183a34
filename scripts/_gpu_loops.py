"""Measured loops, made of the parts a trial is made of."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from _gpu_rig import Rig
from torch.utils.data import DataLoader, Dataset

from shardtools.bench.consumers import Step, open_step
from shardtools.bench.devices import Device
from shardtools.bench.not_measured import Reasons
from shardtools.bench.spec import Consumer, Copy, Layout, Settings, TrialSpec, Workload
from shardtools.bench.timers import StageTimers
from shardtools.bench.trial._epochs import Epochs
from shardtools.bench.trial._marks import DeviceMarks
from shardtools.bench.trial._steps import Loop
from shardtools.bench.trial.loader import loader_kwargs
from shardtools.bench.window import Hooks, WindowFacts, WindowRule, measure

COPIES: tuple[Copy, ...] = ("blocking", "async", "prefetch-stream")
WORKERS, PREFETCH, BATCH = 2, 2, 8
MIN_STEPS = 20
_NUM_COPIES = 5
_ENDLESS = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """What a check found."""

    expected: str
    got: dict[str, Any]
    is_right: bool


@dataclass(frozen=True)
class Plan:
    """What a window is measured with."""

    step: Step | None
    copy: Copy | None
    is_timed: bool = False
    """With marks, as the timeline mode has them."""
    num_workers: int = 0


@dataclass(frozen=True)
class Ran:
    """A measured window."""

    facts: WindowFacts
    loop: Loop
    marks: DeviceMarks | None
    device: Device

    @property
    def step_ms(self) -> float:
        return self.facts.wall_s / self.facts.steps * 1000

    @property
    def rate(self) -> float:
        """Batches a second."""
        return self.facts.steps / self.facts.wall_s

    def figures(self) -> dict[str, dict[str, Any]]:
        """As the timeline mode of a trial reports them; needs numpy."""
        from shardtools.bench.trial._figures import Timed, step_figures

        spec = TrialSpec(Layout("", "files", "torch"), Workload(), consumer=Consumer("sim"), mode="timeline")
        found = step_figures(Timed(spec, self.device, self.loop, self.marks), self.facts, Reasons())
        return {name: part for name, part in found.items() if part is not None}


def windowed(rig: Rig, batches: Iterator[Any], plan: Plan, device: Device | None = None) -> Ran:
    """A window over batches that never end, counted as one sample each."""
    device = device or rig.device
    marks = DeviceMarks(device) if plan.is_timed else None
    loop = Loop(device, plan.step, plan.copy, marks)
    rule = WindowRule(plan.num_workers, PREFETCH, MIN_STEPS, rig.seconds, warm_seconds=rig.seconds / 4, max_seconds=4 * rig.seconds)
    facts = measure(loop.consumed(batches), _no_more, lambda _: 1, rule, Hooks(device.now, device.synchronize))
    return Ran(facts, loop, marks, device)


def _no_more() -> NoReturn:
    raise RuntimeError("expected batches without end")


def computing(device: Device, milliseconds: float, launch_cpu_ms: float = 0.0) -> Step:
    """The consumer ``sim``."""
    step = open_step(Consumer("sim", step_ms=milliseconds, launch_cpu_ms=launch_cpu_ms), None, device)
    assert step is not None
    return step


def nothing(_: Any) -> None:
    """A consumer that only has its batches brought."""


def copied_ms(device: Device, batch: Any, non_blocking: bool) -> float:
    """Device time of one copy alone, by marks around it; the median."""
    times = []
    for _ in range(_NUM_COPIES + 1):
        begin, end = device.new_mark(), device.new_mark()
        device.record(begin)
        copied = device.copied(batch, non_blocking)
        device.record(end)
        device.synchronize()
        del copied
        times.append(device.between_ms(begin, end))
    return statistics.median(times[1:])  # the first takes memory


def pinned_batch(rig: Rig, copy_ms: float) -> Any:
    """A pinned batch whose copy takes about so long."""
    probe = rig.device.pinned_copy(torch.zeros(rig.probe_bytes, dtype=torch.uint8))
    bytes_per_ms = rig.probe_bytes / copied_ms(rig.device, probe, non_blocking=True)
    return rig.device.pinned_copy(torch.zeros(int(copy_ms * bytes_per_ms), dtype=torch.uint8))


class Patterns(Dataset[Any]):
    """Sample ``i``: a tensor of that shape, uint8, filled with a number that tells it from its neighbours."""

    def __init__(self, shape: tuple[int, ...], timers: StageTimers | None = None) -> None:
        self._shape = shape
        self._timers = timers

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, i: int) -> Any:
        if self._timers is None:
            return torch.full(self._shape, i % 251, dtype=torch.uint8)
        with self._timers.stage("decode"):
            return torch.full(self._shape, i % 251, dtype=torch.uint8)


@contextmanager
def loaded(
    rig: Rig, dataset: Dataset[Any], num_workers: int = WORKERS, collate: Callable[[list[Any]], Any] | None = None, pins: bool = True
) -> Iterator[Any]:
    """Batches of a loader with the arguments of a trial's; its workers end with it."""
    settings = Settings(num_workers, PREFETCH, pin_memory=pins and rig.pins)
    loader = DataLoader(dataset, batch_size=BATCH, collate_fn=collate, **loader_kwargs(settings))
    epochs = Epochs(loader, rig.device.now)
    del loader
    try:
        yield epochs.begin()[1]
    finally:
        epochs.end()
