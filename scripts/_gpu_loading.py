"""Checks of what a loader, the host and the first steps do to the figures of a device."""

from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Any

import torch
from _gpu_loops import BATCH, WORKERS, Outcome, Patterns, Plan, computing, copied_ms, loaded, pinned_batch, windowed
from _gpu_rig import NotRunError, Rig
from torch.utils.data import DataLoader, Dataset

from shardtools.bench.consumers import Step
from shardtools.bench.spec import Settings
from shardtools.bench.timers import StageTimers
from shardtools.bench.trial._static import resident_step_s, warmed
from shardtools.bench.trial.loader import loader_kwargs
from shardtools.bench.trial.overhead import LIMIT, Overhead, instrumentation_overhead
from shardtools.bench.user_faults import sentence_of

_IMAGE = (3, 64, 64)
_PERIOD_S, _DUTY = 0.06, 0.5
_SETTLE_SECONDS = 1.5
"""Longer than the longest period over which NVML looks back."""
_DUTY_SECONDS = 4.0
_IDLE_PERCENT = 5.0
_FIRST_MS, _LATER_MS = 200.0, 5.0
_LAUNCH_MS = 2.0
_FORKED = "Cannot re-initialize CUDA in forked subprocess"


def duty(rig: Rig) -> Outcome:
    """What NVML says of a device that computes for half of every period, against the time between marks."""
    device = rig.device
    warmed(device, computing(device, 1.0), None)
    with rig.utilisation() as utilisation:
        rig.pause(_SETTLE_SECONDS)
        idle = utilisation.read()
        if idle > _IDLE_PERCENT:
            raise NotRunError(f"something else uses this accelerator: NVML tells {idle:.0f} % while this process does nothing")
        _half_busy(rig, _SETTLE_SECONDS, None)
        began, readings = device.now(), []
        spans = _half_busy(rig, _DUTY_SECONDS, lambda: readings.append(utilisation.read()))
        wall_ms = (device.now() - began) * 1000
    device.synchronize()
    events = 100 * sum(device.between_ms(begin, end) for begin, end in spans) / wall_ms
    nvml = sum(readings) / len(readings)
    return Outcome("within 10 points of each other", {"events_pct": events, "nvml_pct": nvml, "idle_pct": idle}, abs(events - nvml) <= 10)


def _half_busy(rig: Rig, seconds: float, look: Callable[[], None] | None) -> list[tuple[Any, Any]]:
    """The marks around each computation."""
    device, spans, began = rig.device, [], rig.device.now()
    for i in range(int(seconds / _PERIOD_S)):
        begin, end = device.new_mark(), device.new_mark()
        device.record(begin)
        device.busy(1000 * _PERIOD_S * _DUTY)
        device.record(end)
        spans.append((begin, end))
        rig.pause(max(0.0, began + (i + 1) * _PERIOD_S - device.now()))
        if look is not None:
            look()
    return spans


def independent(rig: Rig) -> Outcome:
    """G is the consumer's: the same before a slow loader, beside its workers and after them."""
    device = rig.device
    batch = device.copied(torch.zeros((BATCH, *_IMAGE), dtype=torch.uint8), non_blocking=False)
    step = rig.model_step(batch)
    warmed(device, step, batch)
    before = resident_step_s(device, step, batch)
    with loaded(rig, Patterns(_IMAGE)) as batches:
        looped = windowed(rig, _slowly(rig, batches, 3 * before), Plan(step, "async", num_workers=WORKERS)).rate
        beside = resident_step_s(device, step, batch)
    after = resident_step_s(device, step, batch)
    rates = [1 / before, 1 / beside, 1 / after]
    got = {"G_before": rates[0], "G_beside": rates[1], "G_after": rates[2], "F": looped}
    return Outcome(
        "G within 10 % three times, F under half of it (batches/s)", got, max(rates) < 1.1 * min(rates) and looped < 0.5 * min(rates)
    )


def _slowly(rig: Rig, batches: Iterator[Any], seconds: float) -> Iterator[Any]:
    for batch in batches:
        rig.pause(seconds)
        yield batch


def first(rig: Rig) -> Outcome:
    """A first step of 200 ms among steps of 5 is in no figure."""
    device, batch = rig.device, pinned_batch(rig, 1.0)
    copy_ms = copied_ms(device, batch, non_blocking=True)
    looped = windowed(rig, repeat(batch), Plan(_slow_at_first(rig), "async", is_timed=True))
    resident_ms = resident_step_s(device, _slow_at_first(rig), device.copied(batch, non_blocking=False)) * 1000
    compute = looped.figures()["compute_ms"]
    got = {"copy_ms": copy_ms, "F_step_ms": looped.step_ms, "G_step_ms": resident_ms, "warm_steps": looped.facts.warm_steps}
    got |= {"compute_mean_ms": compute["mean"], "compute_most_ms": max(compute["first"])}
    is_right = abs(looped.step_ms / (_LATER_MS + copy_ms) - 1) < 0.15 and abs(resident_ms / _LATER_MS - 1) < 0.15
    is_right &= abs(compute["mean"] / _LATER_MS - 1) < 0.1 and max(compute["first"]) < 2 * _LATER_MS and looped.facts.warm_steps >= 1
    return Outcome(
        "steps of 5 ms (15 %) without a loader, and with the copy's beside; 5 ms of computation (10 %), at most 10", got, is_right
    )


def _slow_at_first(rig: Rig) -> Step:
    calls = count()

    def step(_: Any) -> None:
        rig.device.busy(_LATER_MS if next(calls) else _FIRST_MS)

    return step


class _UsesDevice(Dataset[Any]):
    """What must not be done in a forked worker."""

    def __init__(self, target: str, is_simulated: bool) -> None:
        self._target = target
        self._is_simulated = is_simulated

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        if self._is_simulated:
            raise RuntimeError(f"{_FORKED}. To use CUDA with multiprocessing, you must use the 'spawn' start method")
        return torch.zeros(1, device=self._target)


def forked(rig: Rig) -> Outcome:
    """A worker that uses CUDA where its parent did before it was forked: a trial says so in one sentence."""
    rig.device.copied(torch.zeros(1), non_blocking=False)
    dataset = _UsesDevice(rig.device.target, rig.name != "cuda")
    loader = DataLoader(dataset, **loader_kwargs(Settings(num_workers=1, start_method="fork")))
    sentence = ""
    try:
        next(iter(loader))
    except RuntimeError as error:
        sentence = sentence_of(error)
        error.with_traceback(None)  # its frames hold the loader, whose worker would then end late
    is_right = _FORKED in sentence and "\n" not in sentence and "Traceback" not in sentence
    return Outcome(f"one line with: {_FORKED}", {"sentence": sentence}, is_right)


def overhead(rig: Rig) -> Outcome:
    """The timeline mode's marks and timers, by rates of loops with them and without, in turn. ``model`` is told, not judged."""
    import numpy  # noqa: F401 - the timers need it

    batch = rig.device.copied(torch.zeros((BATCH, *_IMAGE), dtype=torch.uint8), non_blocking=False)
    plain = _overhead(rig, computing(rig.device, _LATER_MS))
    model = _overhead(rig, rig.model_step(batch))
    if LIMIT <= abs(plain.share) <= plain.spread:
        raise NotRunError(
            f"loops with marks differ by {100 * plain.share:+.1f} %, and loops of one kind by up to {100 * plain.spread:.1f} %"
        )
    got = {"share": plain.share, "spread": plain.spread, "model_share": model.share, "model_spread": model.spread}
    return Outcome(f"share between -{LIMIT:g} and {LIMIT:g}", got, abs(plain.share) < LIMIT)


def _overhead(rig: Rig, step: Step) -> Overhead:
    rates: dict[bool, list[float]] = {False: [], True: []}
    for i in range(2 * rig.rounds):
        is_timed = i % 4 in (1, 2)
        rates[is_timed].append(_rate(rig, step, is_timed))
    return instrumentation_overhead(rates[False], rates[True])


def _rate(rig: Rig, step: Step, is_timed: bool) -> float:
    """Every loader is gone before the next forks its workers."""
    timers = StageTimers(WORKERS) if is_timed else None
    with loaded(rig, Patterns(_IMAGE, timers)) as batches:
        return windowed(rig, batches, Plan(step, "prefetch-stream", is_timed, WORKERS)).rate


def launch(rig: Rig) -> Outcome:
    """A step that needs the host for 2 ms to be launched is launched later where processors are taken by others."""
    step = computing(rig.device, 1.0, launch_cpu_ms=_LAUNCH_MS)
    quiet = _launched(rig, step)
    with rig.busy_host():
        busy = _launched(rig, step)
    is_right = 0.9 < quiet["launch_ms"] / _LAUNCH_MS < 1.5 and min(busy[name] / quiet[name] for name in quiet) > 1.3
    expected = f"{_LAUNCH_MS:g} ms to launch (0.9 to 1.5 of it) on a quiet host; launch and step over 1.3 times as long on a busy one"
    return Outcome(expected, {"quiet": quiet, "busy": busy}, is_right)


def _launched(rig: Rig, step: Step) -> dict[str, float]:
    ran = windowed(rig, repeat(0), Plan(step, None, is_timed=True))
    return {"launch_ms": ran.figures()["launch_ms"]["mean"], "step_ms": ran.step_ms}
