"""The figures of one side: medians over its trials, and what its timeline says."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shardtools.bench.equality import Proof
from shardtools.bench.measured import Measured
from shardtools.bench.trial import TrialResult, instrumentation_overhead


def side_figures(measured: Measured, side: int, proof: Proof) -> dict[str, Any]:
    """One line of the table: medians over its trials; shares and stages of the timeline."""
    layout, results = measured.layouts[side], measured.of(side, is_timeline=False)
    timelines = measured.of(side, is_timeline=True)
    rates = [result.found["throughput"] for result in results]
    found = timelines[0].found if timelines else {}
    payload = [result.found["batch"]["bytes"] / result.found["batch"]["samples"] for result in results]
    overhead = instrumentation_overhead(rates, [one.found["throughput"] for one in timelines]) if rates and timelines else None
    return {
        "name": _name(measured, side),
        "uri": layout.uri,
        "kind": layout.kind,
        "reader": layout.reader,
        "throughput": statistics.median(rates) if rates else None,
        "least": min(rates, default=None),
        "most": max(rates, default=None),
        "tokens_per_s": statistics.median(rates) * proof.num_tokens / proof.num_delivered if rates and proof.num_tokens else None,
        "payload_MBps": statistics.median(rates) * statistics.median(payload) / 1e6 if rates else None,
        "au": _median(results, "au"),
        "wait_share": _wait_share(found),
        "first_batch_s": statistics.median([_first_batch_s(result) for result in results]) if results else None,
        "read_amplification": _median(results, "read_amplification"),
        "stages": _stage_shares(found.get("stages")),
        "order": results[0].found["order"] if results else None,
        "overhead": None if overhead is None else asdict(overhead),
        "num_failed": sum(trial.side == side and trial.result.status != "ok" for trial in measured.trials),
    }


def amplify(result: TrialResult, proof: Proof) -> None:
    """Adds what was fetched from the device over what was delivered, of the window."""
    if result.status != "ok":
        return
    fetched = (result.watched.get("counters") or {}).get("read_bytes")
    payload = result.found["window"]["samples"] * proof.payload_bytes / max(1, proof.num_delivered)
    result.found["read_amplification"] = fetched / payload if fetched is not None and payload else None
    if result.found["read_amplification"] is None:
        result.not_measured.append({"metric": "read_amplification", "reason": "the system counted no reads of the trial"})


def _name(measured: Measured, side: int) -> str:
    """The kind alone where no other side has it; else with the reader, and with the place where that is the same, too."""
    layout, others = measured.layouts[side], [other for i, other in enumerate(measured.layouts) if i != side]
    if any((other.kind, other.reader) == (layout.kind, layout.reader) for other in others):
        number = sum(other == layout for other in measured.layouts[:side])
        return f"{layout.uri} by {layout.reader}" + (f", again ({number + 1})" if number else "")
    return layout.name


def _median(results: Sequence[TrialResult], name: str) -> float | None:
    values = [result.found[name] for result in results if result.found.get(name) is not None]
    return statistics.median(values) if values else None


def _wait_share(found: dict[str, Any]) -> float | None:
    """Of the timeline; between two passes over the data the loop waits, too."""
    wait, window = (found.get("shares") or {}).get("wait"), found.get("window")
    return None if wait is None or window is None else min(1.0, wait + window["restart_s"] / window["wall_s"])


def _first_batch_s(result: TrialResult) -> float:
    startup = result.found["startup"]
    return float(startup["iter_s"] + startup["first_batch_s"])


def _stage_shares(stages: dict[str, dict[str, float]] | None) -> list[list[Any]]:
    """Stages by their part of the workers' measured time, largest first."""
    total = sum(stage["wall_s"] for stage in stages.values()) if stages else 0.0
    if not stages or not total:
        return []
    return sorted(([name, stage["wall_s"] / total] for name, stage in stages.items()), key=lambda pair: -pair[1])
