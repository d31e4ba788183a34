"""A trial from the inside: open one side, start, warm up, measure, and look at what is left to know."""

import multiprocessing
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from shardtools.bench.consumers import CPU_MODEL_WARNING, Step, open_step
from shardtools.bench.devices import Device, open_device
from shardtools.bench.places import NOT_REMOTE, is_remote
from shardtools.bench.prediction import Batch
from shardtools.bench.readers import open_side
from shardtools.bench.readers.counted import Counted
from shardtools.bench.spec import TrialSpec
from shardtools.bench.timers import StageTimers
from shardtools.bench.traffic import Traffic
from shardtools.bench.trial import _after
from shardtools.bench.trial._epochs import Epochs
from shardtools.bench.trial._figures import NO_INSTRUMENTS, Timed, step_figures
from shardtools.bench.trial._foresight import Foresight
from shardtools.bench.trial._marks import DeviceMarks, HostMarks, Marks
from shardtools.bench.trial._pinning import pinning
from shardtools.bench.trial._rehearsal import Rehearsal
from shardtools.bench.trial._running import Running, trial_loader
from shardtools.bench.trial._static import kept_copy, warmed
from shardtools.bench.trial._steps import Loop
from shardtools.bench.trial.loader import limit_threads
from shardtools.bench.window import Hooks, WindowFacts, WindowRule, measure

_MUCH_AHEAD = 0.1
READ_AHEAD = (
    "samples of the measured window may have been read into the shuffle buffer before it began, so that not all reading is in the rate: "
    "give more samples, or a smaller --shuffle-buffer"
)

Tell = Callable[[str, dict[str, Any]], None]
"""Tells the process that supervises the trial how far it is."""


def run(spec: TrialSpec, tell: Tell, rehearsal: Rehearsal | None = None) -> dict[str, Any]:
    """Everything a trial can say of itself, as plain data. Raises UsageError, NoCudaError, RefusedError, and what a loader raises."""
    device = open_device(spec)
    limit_threads()
    torch.set_num_threads(1)
    timers = StageTimers(spec.settings.num_workers) if spec.mode == "timeline" else None
    traffic = Traffic(spec.layout, spec.settings.num_workers) if is_remote(spec.layout.uri) else None
    with nullcontext() if traffic is None else traffic.counting():
        opened = device.now()
        side = open_side(spec.layout, spec.workload, spec.settings, timers, spec.intervention, spec.plant)
        try:
            loader = trial_loader(spec, side.dataset, side.loader_kwargs, traffic)
            running = Running(spec, device, side, Epochs(loader, device.now), timers, traffic, opened)
            del loader
            _measured(running, tell, Foresight(running, rehearsal))
        finally:
            side.close()
    return running.found | {"not_measured": [entry.as_json() for entry in running.reasons.listed()]}


def _measured(running: Running, tell: Tell, foresight: Foresight) -> None:
    spec, device, found = running.spec, running.device, running.found
    (first, num_samples), batches = running.epochs.begin()
    tell("started", {})
    found |= {"order": running.side.order, "limits": running.side.limits}
    found["start_method"] = spec.settings.start_method or multiprocessing.get_start_method()
    foresight.see(Batch.of(first, num_samples))
    foresight.give_reasons()
    found["pinning"] = pinning(first, device, spec.settings.pin_memory)
    found["warnings"] = [text for text in (found["pinning"]["advice"], _model_warning(spec)) if text]
    on_host = on_device = step = None
    if spec.consumer.kind != "none":
        on_host = kept_copy(first, device)
        on_device = device.copied(on_host, non_blocking=False)
        step = open_step(spec.consumer, on_device, device)
        assert step is not None
        warmed(device, step, on_device)
    del first
    facts = _window(running, step, batches, tell)
    del batches
    _after.look(running, facts, step, on_host, on_device)


def _model_warning(spec: TrialSpec) -> str | None:
    return CPU_MODEL_WARNING if spec.consumer.kind == "model" and spec.consumer.device == "cpu" else None


def _window(running: Running, step: Step | None, batches: Any, tell: Tell) -> WindowFacts:
    spec, device, timers = running.spec, running.device, running.timers
    marks = _marks(spec, device)
    loop, counted = Loop(device, step, spec.consumer.copy, marks), Counted()
    moments = {"begin": 0.0}

    def on_start() -> None:
        if timers is not None:
            timers.clear()
        moments["begin"] = device.now()

    hooks = Hooks(device.now, device.synchronize if device.has_copies else None, on_start)
    facts = measure(
        loop.consumed(counted.bare(batches)),
        lambda: loop.consumed(counted.bare(running.epochs.again())),
        counted.num_samples,
        _rule(running),
        hooks,
    )
    if not facts.is_looped and facts.ahead_share is not None and facts.ahead_share >= _MUCH_AHEAD:
        running.found["warnings"].append(READ_AHEAD)
    stages = timers.totals() if timers is not None else None
    timers_share = timers.own_share(facts.wall_s) if timers is not None else None
    begin = moments["begin"]
    running.found["fetched"] = _fetched(running, counted.num_given, begin + facts.wall_s)
    tell("measured", {"begin": begin, "end": begin + facts.wall_s, "gpu_uuid": _gpu_uuid(device)})
    running.found |= {"window": facts.as_json(), "throughput": facts.throughput, "step_ms": facts.step_s * 1000}
    running.found["steps"] = step_figures(Timed(spec, device, loop, marks), facts, running.reasons)
    running.found |= {"stages": stages, "timers_share": timers_share}
    if stages is None:
        running.reasons.add("stages", NO_INSTRUMENTS)
        running.reasons.add("timers_share", NO_INSTRUMENTS)
    return facts


def _fetched(running: Running, num_samples: int, end: float) -> dict[str, Any] | None:
    """From the opening of the data to the end of the window."""
    if running.traffic is None:
        running.reasons.add("fetched", NOT_REMOTE)
        return None
    return running.traffic.found(num_samples, end - running.opened, running.reasons)


def _marks(spec: TrialSpec, device: Device) -> Marks | None:
    if spec.mode == "throughput":
        return None
    return DeviceMarks(device) if spec.mode == "timeline" else HostMarks(device)


def _rule(running: Running) -> WindowRule:
    spec, num_samples = running.spec, running.side.num_samples
    rule = WindowRule.of(spec.settings, spec.min_seconds, spec.min_steps)
    return replace(
        rule,
        stays_in_first_pass=spec.cache != "warm",
        num_batches=None if num_samples is None else -(-num_samples // spec.workload.batch_size),
        num_samples=num_samples,
        ahead_samples=_ahead_samples(spec, num_samples),
        max_seconds=max(spec.min_seconds, min(spec.max_seconds, spec.timeout_seconds / 3)),
    )


def _ahead_samples(spec: TrialSpec, num_samples: int | None) -> int:
    """What the shuffle buffers of all workers hold."""
    if spec.layout.reader != "webdataset" or not spec.workload.shuffle:
        return 0
    num_workers = spec.settings.num_workers
    return spec.workload.buffer_samples(num_samples, num_workers) * max(1, num_workers)


def _gpu_uuid(device: Device) -> str | None:
    if device.name != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device.target), "uuid", None)  # torch has it since 2.4
    return None if uuid is None else f"GPU-{uuid}"
