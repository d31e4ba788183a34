"""From the moments of steps to the figures of a trial. What a mode or a device does not give is None, with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from shardtools.bench.devices import Device
from shardtools.bench.not_measured import Reasons
from shardtools.bench.spec import TrialSpec
from shardtools.bench.trial._marks import COMPUTE_BEGIN, COMPUTE_END, COPY_BEGIN, COPY_END, Marks
from shardtools.bench.trial._steps import Loop
from shardtools.bench.window import WindowFacts

NO_ACCELERATOR = "n/a (no accelerator)"
NO_INSTRUMENTS = "a trial of mode throughput times no steps; that of mode timeline does"
_STRIP_STEPS = 120
"""Of the first measured steps every one is kept, so that a pattern of period W can be seen."""

STEP_METRICS = ("data_wait_ms", "h2d_copy_ms", "compute_ms", "launch_ms", "gpu_starved_ms")


@dataclass(frozen=True)
class Timed:
    """A loop that has run, and what its moments mean."""

    spec: TrialSpec
    device: Device
    loop: Loop
    marks: Marks | None


def step_figures(timed: Timed, facts: WindowFacts, reasons: Reasons) -> dict[str, dict[str, Any] | None]:
    """By metric ``{mean, p50, p95, p99, first}`` in milliseconds a step, ``first`` being the first measured steps one by one."""
    if timed.marks is None:
        for name in STEP_METRICS:
            reasons.add(name, NO_INSTRUMENTS)
        return dict.fromkeys(STEP_METRICS)
    columns = _columns(timed, timed.marks, facts, reasons)
    return {name: _spread(columns[name]) if name in columns else None for name in STEP_METRICS}


def _columns(timed: Timed, marks: Marks, facts: WindowFacts, reasons: Reasons) -> dict[str, Sequence[float]]:
    loop, end = timed.loop, facts.warm_steps + facts.steps
    # One step more than the window may be marked, the one that a prefetching loop has begun.
    kept = range(max(facts.warm_steps, end + 1 - marks.num_kept), end)
    # Between passes the loop waits, and then takes batches that lie ready: neither lasts.
    steps = [step for step in kept if facts.counts(step - facts.warm_steps)]
    columns: dict[str, Sequence[float]] = {"data_wait_ms": [loop.wait_s[step] * 1000 for step in steps]}
    if timed.spec.consumer.kind == "none":
        for name in STEP_METRICS[1:]:
            reasons.add(name, "the consumer `none` only drains")
        return columns
    columns["compute_ms"] = [marks.between_ms((step, COMPUTE_BEGIN), (step, COMPUTE_END)) for step in steps]
    columns["launch_ms"] = [loop.launch_s[step] * 1000 for step in steps]
    if not timed.device.has_copies:
        reasons.add("h2d_copy_ms", NO_ACCELERATOR)
        reasons.add("gpu_starved_ms", NO_ACCELERATOR)
        return columns
    columns["h2d_copy_ms"] = [marks.between_ms((step, COPY_BEGIN), (step, COPY_END)) for step in steps]
    if timed.spec.mode == "isolation":
        reasons.add("gpu_starved_ms", "the isolation mode waits for the device after every phase")
    else:
        columns["gpu_starved_ms"] = [_starved_ms(marks, step) for before, step in pairwise(steps) if before == step - 1]
    return columns


def _starved_ms(marks: Marks, step: int) -> float:
    """From the end of the step before to the device's first work of this one: nothing where that, a copy, had begun already."""
    return max(0.0, marks.between_ms((step - 1, COMPUTE_END), (step, COPY_BEGIN)))


def _spread(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    found = np.asarray(values)
    p50, p95, p99 = np.percentile(found, (50, 95, 99)).tolist()
    first = [round(value, 3) for value in values[:_STRIP_STEPS]]
    return {"mean": float(found.mean()), "p50": p50, "p95": p95, "p99": p99, "first": first}


def shares(figures: dict[str, Any], exposed_ms: float | None, facts: WindowFacts, reasons: Reasons) -> dict[str, float | None]:
    """Of the step in the main loop: waiting, the copy that is exposed, computing. They come from different loops and need not sum to 1."""
    step_ms = facts.step_s * 1000
    parts = {"wait": figures["data_wait_ms"], "compute": figures["compute_ms"], "starved": figures["gpu_starved_ms"]}
    found = {name: None if part is None else part["mean"] / step_ms for name, part in parts.items()}
    for name, metric in (("wait", "data_wait_ms"), ("compute", "compute_ms"), ("starved", "gpu_starved_ms")):
        if found[name] is None:
            reasons.add(f"shares.{name}", reasons.of(metric) or NO_INSTRUMENTS)
    if exposed_ms is None:
        reasons.add("shares.h2d", reasons.of("h2d_exposed_ms") or NO_ACCELERATOR)
    return found | {"h2d": None if exposed_ms is None else max(0.0, exposed_ms) / step_ms}
