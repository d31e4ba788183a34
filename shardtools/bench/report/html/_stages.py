"""What a batch costs in each stage from the disk to the device, out of the trial of a side that had timers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shardtools.bench.report.html._words import Say

Json = Mapping[str, Any]

IN_WORKERS = ("storage", "parse", "decode", "transform", "collate")
STAGES = (*IN_WORKERS, "transfer", "h2d", "gpu")
"""In the order a batch passes them."""

_STAGE_OF_CLASS = {"shared_memory": "transfer", "fd_limit": "transfer", "h2d_copy": "h2d", "fed": "gpu"}
_NOT_TIMED = "it was not timed"
_NO_TRIAL = "no trial of this side with timers went well"


@dataclass(frozen=True)
class Cost:
    """Of one batch in one stage. ``busy`` and ``waiting`` are parts of the workers' time, or of the step in the main process."""

    stage: str
    ms: float | None
    busy: float
    waiting: float
    reason: str
    """Why there is no number; empty where there is one."""

    @property
    def share(self) -> float:
        """The device's own: it waits for others. Workers wait for what they read, which is the stage's cost."""
        return self.busy if self.stage == "gpu" else self.busy + self.waiting


@dataclass(frozen=True)
class Limit:
    """The stage to be outlined."""

    stage: str | None
    is_verdict: bool
    """False: only the stage that takes most of the workers' time."""

    @property
    def word(self) -> str:
        """What it is called beside its box. A device that is fed is no bottleneck of the loader."""
        return ("pace" if self.stage == "gpu" else "limit") if self.is_verdict else "largest"


def without_rate(facts: Json, say: Say) -> str:
    """Of a side, in place of its rate: that it failed, or that no trial of it has ended."""
    return say("failed") if facts["num_failed"] else say("not measured")


def timeline(data: Json, side: int) -> Json | None:
    """The trial of a side that has timers, if it went well."""
    for trial in data["trials"]:
        spec = trial["spec"]
        if trial["side"] == side and spec["mode"] == "timeline" and trial["status"] == "ok" and not spec.get("intervention"):
            return trial  # type: ignore[no-any-return]
    return None


def costs(data: Json, side: int) -> list[Cost]:
    """One for each of STAGES."""
    trial = timeline(data, side)
    if trial is None:
        return [Cost(stage, None, 0.0, 0.0, _NO_TRIAL) for stage in STAGES]
    return [*_in_workers(trial), _transfer(trial), *_on_device(trial)]


def reason(trial: Json, metric: str) -> str:
    """Why a number of a trial is not there, by the end of its place, as of ``found.steps.h2d_copy_ms``; empty where nothing says."""
    every = trial["not_measured"]
    return next((str(entry["reason"]) for entry in every if f".{entry['metric']}".endswith(f".{metric}")), "")


def _in_workers(trial: Json) -> Iterator[Cost]:
    found = trial["found"]
    stages, steps = found.get("stages") or {}, max(1, found["window"]["steps"])
    total = sum(stage["wall_s"] for stage in stages.values())
    for name in IN_WORKERS:
        stage = stages.get(name)
        if stage is None or not stage["count"] or not total:
            yield Cost(name, None, 0.0, 0.0, reason(trial, "stages") or "these data have no such stage")
            continue
        blocked = min(stage["blocked_s"], stage["wall_s"])
        yield Cost(name, 1000 * stage["wall_s"] / steps, (stage["wall_s"] - blocked) / total, blocked / total, "")


def _transfer(trial: Json) -> Cost:
    found = trial["found"]
    floor = found.get("ipc_floor_ms")
    if floor is None:
        return Cost("transfer", None, 0.0, 0.0, reason(trial, "ipc_floor_ms") or _NOT_TIMED)
    cost = floor + (found.get("pin_ms") or 0.0)
    return Cost("transfer", cost, min(1.0, cost / found["step_ms"]), 0.0, "")


def _on_device(trial: Json) -> Iterator[Cost]:
    steps, shares = trial["found"]["steps"], trial["found"]["shares"]
    copy, compute = steps["h2d_copy_ms"], steps["compute_ms"]
    if copy is None:
        yield Cost("h2d", None, 0.0, 0.0, reason(trial, "h2d_copy_ms") or _NOT_TIMED)
    else:
        yield Cost("h2d", copy["mean"], min(1.0, shares["h2d"] or 0.0), 0.0, "")
    if compute is None:
        yield Cost("gpu", None, 0.0, 0.0, reason(trial, "compute_ms") or _NOT_TIMED)
    else:
        waiting = shares["starved"] if shares["starved"] is not None else shares["wait"] or 0.0
        busy = min(1.0, shares["compute"] or 0.0)
        yield Cost("gpu", compute["mean"], busy, min(waiting, 1.0 - busy), "")


def verdict_of(data: Json, side: int) -> Json | None:
    """What was found to limit a side."""
    found = data.get("verdicts") or ([data["verdict"]] if data.get("verdict") else [])
    return next((verdict for verdict in found if verdict.get("side", 0) == side), None)


def limit(data: Json, side: int) -> Limit:
    """By the verdict; without one, the stage that takes most of the workers' time."""
    verdict = verdict_of(data, side)
    if verdict is not None:
        name = _STAGE_OF_CLASS.get(verdict["class"], verdict["class"])
        stage = name if name in STAGES else verdict.get("stage")
        return Limit(stage if stage in STAGES and verdict["class"] not in ("balanced", "inconclusive") else None, True)
    timed = [cost for cost in costs(data, side) if cost.ms is not None and cost.stage in IN_WORKERS]
    return Limit(max(timed, key=lambda cost: cost.share).stage if timed else None, False)


def of_step(data: Json, side: int) -> list[tuple[str, float]]:
    """A step of the main loop: what it waits, what of the copy it pays, what it computes, and the rest; parts of 1."""
    trial = timeline(data, side)
    if trial is None:
        return []
    shares = trial["found"]["shares"]
    parts = [(name, min(1.0, shares.get(name) or 0.0)) for name in ("wait", "h2d", "compute")]
    total = sum(share for _, share in parts)
    if not total:
        return []
    return [*((name, share / max(total, 1.0)) for name, share in parts), ("rest", max(0.0, 1.0 - total))]
