"""The table of ``DataLoader`` settings: each cell foreseen, then tried in fresh processes, within a budget of time."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shardtools.bench.prediction import Limits, Prediction, Probe, exceeded, predict, probe_of, refusal
from shardtools.bench.search import Cell, Found, Goal, Outcome, Record, Space, find
from shardtools.bench.search.advice import Advice
from shardtools.bench.search.capped import Capped, capped_by_shm
from shardtools.bench.search.matrix_cells import cells_json
from shardtools.bench.search.recommendation import recommend
from shardtools.bench.spec import Settings, TrialSpec
from shardtools.bench.trial import TrialResult, run_trial

Say = Callable[[str], None]
_USUAL_TRIALS = 30
_TRIAL_OVERHEAD_SECONDS = 3.5
"""To start, to warm up and to end."""
_SHORTEST_WINDOW, _LONGEST_WINDOW = 0.5, 10.0
_FEWEST_STEPS = 20
_SHORTEST_TIMEOUT = 30.0
_START_SECONDS, _START_STEPS = 0.2, 10


@dataclass(frozen=True)
class MatrixLimits:
    """What bounds the search, of the machine and of the data."""

    cpus_effective: int
    num_shards: int | None = None
    """Workers beyond it would have nothing to read; None: small files, or not known."""
    num_samples: int | None = None
    """Of an epoch; None: what keeping workers saves is told in seconds alone."""
    num_ranks: int = 1
    """On this node."""
    seed: int = 0
    resources: Callable[[], Limits] = Limits.here
    """Looked at before each cell."""


@dataclass(frozen=True)
class MatrixTrial:
    """One trial of a cell."""

    cell: Cell
    cache: Any
    """What ``prepare`` returned: the state of the page cache it began with. None where the trial never came so far."""
    result: TrialResult


@dataclass(frozen=True)
class Searched:
    """``matrix`` and ``recommendation`` as the report has them."""

    matrix: dict[str, Any]
    recommendation: dict[str, Any] | None
    """None where no cell went well."""
    trials: list[MatrixTrial]
    capped: Capped | None = None
    """Shared memory ended the search."""
    wanted_shm_bytes: int | None = None
    """Of the setting it has no room for."""


@dataclass
class _Runner:
    """Tries cells for the search, and keeps all that was seen."""

    base: TrialSpec
    prepare: Callable[[], Any]
    limits: MatrixLimits
    say: Say
    seconds: float
    probe: Probe | None = None
    """Of the last trial that made a batch."""
    trials: list[MatrixTrial] = field(default_factory=list)

    def run(self, cell: Cell) -> Outcome:
        refused = self.refusal(cell)
        if refused is not None:
            self.say(f"{words(cell)}: {refused}")
            return Outcome("refused", message=refused, is_trial=False)
        result = self._trial(cell, self.spec(cell))
        told = f"{result.throughput:,.0f} samples/s" if result.throughput else f"{result.status}: {result.message}"
        self.say(f"{words(cell)}: {told}")
        return _outcome(result)

    def start_of(self, cell: Cell) -> float | None:
        """The start of a second epoch, in a short trial that reads a small epoch to its end where the real one is too long."""
        spec = replace(self.spec(cell), mode="timeline", min_seconds=_START_SECONDS, min_steps=_START_STEPS)
        result = self._trial(cell, spec)
        startup: dict[str, Any] = result.found.get("startup") or {}
        seconds: float | None = startup.get("epoch2_s")
        self.say(f"{words(cell)}: a second epoch starts in {'an unknown time' if seconds is None else f'{seconds:.3f} s'}")
        return seconds

    def refusal(self, cell: Cell) -> str | None:
        foreseen = self.foreseen(cell)
        return None if foreseen is None or self.base.is_forced else refusal(foreseen, self.limits.resources())

    def lacks_shm(self, cell: Cell) -> bool:
        foreseen = self.foreseen(cell)
        return foreseen is not None and not self.base.is_forced and "shm" in exceeded(foreseen, self.limits.resources())

    def foreseen(self, cell: Cell) -> Prediction | None:
        """None until a first batch has been seen."""
        if self.probe is None:
            return None
        return predict(self.probe, self.settings(cell), self.base.consumer.copy, self.limits.num_ranks)

    def settings(self, cell: Cell) -> Settings:
        """Without CUDA ``pin_memory`` does nothing."""
        pin = cell.pin_memory and self.base.consumer.device == "cuda"
        return replace(
            self.base.settings,
            num_workers=cell.num_workers,
            prefetch_factor=cell.prefetch_factor,
            pin_memory=pin,
            persistent_workers=cell.persistent_workers,
        )

    def spec(self, cell: Cell) -> TrialSpec:
        """Windows as long as the budget allows for some thirty trials; a slow loader is cut short rather than eating all of it."""
        room = self.seconds / _USUAL_TRIALS - _TRIAL_OVERHEAD_SECONDS
        return replace(
            self.base,
            settings=self.settings(cell),
            mode="throughput",
            min_seconds=min(self.base.min_seconds, max(room, _SHORTEST_WINDOW)),
            min_steps=min(self.base.min_steps, _FEWEST_STEPS),
            max_seconds=min(self.base.max_seconds, max(room, _LONGEST_WINDOW)),
            timeout_seconds=min(self.base.timeout_seconds, max(_SHORTEST_TIMEOUT, self.seconds / 5)),
        )

    def _trial(self, cell: Cell, spec: TrialSpec) -> TrialResult:
        proofs: list[Any] = []
        result = run_trial(spec, lambda: proofs.append(self.prepare()))
        self.trials.append(MatrixTrial(cell, proofs[0] if proofs else None, result))
        data = result.found.get("probe")
        if data is not None:
            self.probe = _together(self.probe, probe_of(data))
        return result


def search(
    base: TrialSpec,
    prepare: Callable[[], Any],
    kind: Literal["knee", "grid"],
    limits: MatrixLimits,
    say: Say,
    seconds: float,
) -> Searched:
    """Tries settings around ``base``, whose own are the current ones, and says which to use.

    ``prepare`` brings the page cache to its state before each trial and returns the proof. ``knee``: the fewest workers with 95 % of the
    best rate, in 20 to 30 trials; ``grid``: every cell, three times. What matters most comes first: when ``seconds`` are over, a trial
    may still end, and ``stopped`` is ``time budget``. A cell that fails or is refused is part of the table and no error. Raises what
    ``prepare`` raises and what interrupts this call.
    """
    runner = _Runner(base, prepare, limits, say, seconds)
    space = space_of(base, limits)
    current = Cell.of(runner.settings(Cell.of(base.settings)))
    record = Record(runner.run, seconds, start_of=runner.start_of)
    found = find(record, space, Goal(current, kind, limits.num_samples, limits.seed))
    return _searched(runner, space, kind, found)


def _searched(runner: _Runner, space: Space, kind: str, found: Found) -> Searched:
    seen = {cell: [trial.result for trial in runner.trials if trial.cell == cell] for cell in dict.fromkeys(t.cell for t in runner.trials)}
    cells, places = cells_json(found, space, runner, seen)
    matrix = {
        "kind": kind,
        "cells": cells,
        "knee": places.get(found.knee) if found.knee else None,
        "best": places.get(found.best) if found.best else None,
        "num_trials": found.record.num_trials,
        "full_grid_trials": space.full_grid_trials,
        "stopped": found.stopped,
    }
    capped = capped_by_shm(found, space, runner.lacks_shm)
    wanted = None if capped is None else runner.foreseen(capped.wanted)
    wanted_bytes = None if wanted is None else wanted.shm_bound_bytes
    results = [trial.result for trial in runner.trials]
    advice = Advice(found, space, runner.base, runner.settings, runner.foreseen, runner.limits.resources, results, wanted_bytes or 0)
    return Searched(matrix, recommend(advice), runner.trials, capped, wanted_bytes)


def space_of(base: TrialSpec, limits: MatrixLimits) -> Space:
    """Twice the processors, or as many workers as there are shards."""
    of_cpus = 2 * limits.cpus_effective
    cap = f"2 x {limits.cpus_effective} processors"
    if limits.num_shards is not None and limits.num_shards < of_cpus:
        return Space(limits.num_shards, f"{limits.num_shards} shards", limits.cpus_effective, has_pinning=base.consumer.device == "cuda")
    return Space(of_cpus, cap, limits.cpus_effective, has_pinning=base.consumer.device == "cuda")


def words(cell: Cell) -> str:
    """``W=4 P=2 pin``, for one line of progress."""
    if cell.num_workers == 0:
        return "W=0" + (" pin" if cell.pin_memory else "")
    marks = (" pin" if cell.pin_memory else "") + ("" if cell.persistent_workers else " not persistent")
    return f"W={cell.num_workers} P={cell.prefetch_factor}{marks}"


def _outcome(result: TrialResult) -> Outcome:
    if result.status != "ok":
        return Outcome(result.status, message=result.message)
    found = result.found
    device_rate: float | None = found["rates"]["G"]
    step_ms: float = found["step_ms"]
    p99_ms: float | None = found["window"].get("step_p99_ms")
    # Without instruments waits are not timed: what a step takes beyond the device's own time is one.
    consume_ms = 1000 * found["batch"]["samples"] / device_rate if device_rate else 0.0
    return Outcome(
        "ok",
        result.throughput,
        wait_p99_ms=None if p99_ms is None else max(0.0, p99_ms - consume_ms),
        mean_step_ms=step_ms,
        epoch2_s=found["startup"]["epoch2_s"],
        device_rate=device_rate,
        au=found["au"],
    )


def _together(known: Probe | None, new: Probe) -> Probe:
    """The larger of what was seen: batches and workers differ a little, and too much was never foreseen for want of a look."""
    if known is None:
        return new
    batch = new.batch if new.batch.shm_bytes >= known.batch.shm_bytes else known.batch
    return Probe(
        batch,
        _larger(known.worker_rss_bytes, new.worker_rss_bytes),
        _larger(known.main_rss_bytes, new.main_rss_bytes),
        _larger(known.buffer_bytes_per_worker, new.buffer_bytes_per_worker),
    )


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
