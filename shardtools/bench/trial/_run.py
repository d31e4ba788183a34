"""A trial from the inside: open one side, start, warm up, measure, and look at what is left to know."""

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from shardtools.bench.consumers import CPU_MODEL_WARNING, Step, open_step
from shardtools.bench.counters import host
from shardtools.bench.devices import Device, open_device
from shardtools.bench.environment import usable_memory_bytes
from shardtools.bench.leaves import leaves
from shardtools.bench.readers import open_side
from shardtools.bench.spec import TrialSpec
from shardtools.bench.timers import StageTimers
from shardtools.bench.trial import _after
from shardtools.bench.trial._epochs import Epochs
from shardtools.bench.trial._figures import NO_INSTRUMENTS, Timed, step_figures
from shardtools.bench.trial._marks import DeviceMarks, HostMarks, Marks
from shardtools.bench.trial._pinning import pinning
from shardtools.bench.trial._running import Running, trial_loader
from shardtools.bench.trial._safety import batch_facts, predicted, refuse_unsafe
from shardtools.bench.trial._static import kept_copy, warmed
from shardtools.bench.trial._steps import Loop
from shardtools.bench.trial.loader import limit_threads
from shardtools.bench.window import Hooks, WindowFacts, WindowRule, measure

Tell = Callable[[str, dict[str, Any]], None]
"""Tells the process that supervises the trial how far it is."""


def run(spec: TrialSpec, tell: Tell) -> dict[str, Any]:
    """Everything a trial can say of itself, as plain data. Raises UsageError, NoCudaError, RefusedError, and what a loader raises."""
    device = open_device(spec)
    limit_threads()
    torch.set_num_threads(1)
    timers = StageTimers(spec.settings.num_workers) if spec.mode == "timeline" else None
    side = open_side(spec.layout, spec.workload, spec.settings, timers)
    try:
        loader = trial_loader(spec, side.dataset, side.loader_kwargs)
        running = Running(spec, device, side, Epochs(loader, device.now), timers)
        del loader
        _measured(running, tell)
    finally:
        side.close()
    return running.found | {"not_measured": [entry.as_json() for entry in running.reasons.listed()]}


def _measured(running: Running, tell: Tell) -> None:
    spec, device, found = running.spec, running.device, running.found
    shm = running.reasons.attempt("shm", host.shared_memory)
    usable_bytes = running.reasons.attempt("usable_memory_bytes", usable_memory_bytes)
    first, batches = running.epochs.begin()
    tell("started", {})
    found |= {"order": running.side.order, "limits": running.side.limits}
    found["start_method"] = spec.settings.start_method or multiprocessing.get_start_method()
    found["batch"] = batch_facts(first) | {"samples": _num_samples(first, spec)}
    found["predicted"] = predicted(found["batch"], spec.settings, spec.consumer.copy)
    if not spec.is_forced:
        refuse_unsafe(found["predicted"], found["batch"], shm.free_bytes if shm else None, usable_bytes)
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
    loop = Loop(device, step, spec.consumer.copy, marks)
    moments = {"begin": 0.0}

    def on_start() -> None:
        if timers is not None:
            timers.clear()
        moments["begin"] = device.now()

    hooks = Hooks(device.now, device.synchronize if device.has_copies else None, on_start)
    facts = measure(
        loop.consumed(batches),
        lambda: loop.consumed(running.epochs.begin()[1]),
        lambda batch: _num_samples(batch, spec),
        _rule(running),
        hooks,
    )
    stages = timers.totals() if timers is not None else None
    begin = moments["begin"]
    tell("measured", {"begin": begin, "end": begin + facts.wall_s, "gpu_uuid": _gpu_uuid(device)})
    running.found |= {"window": facts.as_json(), "throughput": facts.throughput, "step_ms": facts.wall_s / facts.steps * 1000}
    running.found["steps"] = step_figures(Timed(spec, device, loop, marks), facts, running.reasons)
    running.found["stages"] = stages
    if stages is None:
        running.reasons.add("stages", NO_INSTRUMENTS)
    return facts


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
        max_seconds=max(spec.min_seconds, min(rule.max_seconds, spec.timeout_seconds / 3)),
    )


def _num_samples(batch: Any, spec: TrialSpec) -> int:
    """Rows of the last tensor: batches of bytes are one long tensor and one length a sample."""
    found = leaves(batch)
    return len(found[-1].tensor) if found and found[-1].tensor.dim() else spec.workload.batch_size


def _gpu_uuid(device: Device) -> str | None:
    if device.name != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device.target), "uuid", None)  # torch has it since 2.4
    return None if uuid is None else f"GPU-{uuid}"
