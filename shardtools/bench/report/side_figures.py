"""The figures of one side: medians over its trials, and what its timeline says."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shardtools.bench.copies import fetches_anew
from shardtools.bench.equality import Proof
from shardtools.bench.measured import Measured, Trial
from shardtools.bench.trial import TrialResult, instrumentation_overhead

PEAKS = ("shm", "fd", "rss", "pss", "pinned", "gpu_memory")
STARTUP = ("iter_s", "first_batch_s", "epoch2_s", "teardown_s")
_WARM_SHARE = 0.99
"""Of the pages resident after a trial: with less, reading again is not all from memory."""


def side_figures(measured: Measured, side: int, proof: Proof) -> dict[str, Any]:
    """One line of the table: medians over its trials, the most of their peaks; shares and stages of the timeline."""
    layout, results = measured.layouts[side], measured.of(side, is_timeline=False)
    timelines = measured.of(side, is_timeline=True)
    rates = [result.found["throughput"] for result in results]
    found = timelines[0].found if timelines else {}
    payload = [result.found["batch"]["bytes"] / result.found["batch"]["samples"] for result in results]
    return {
        "name": name_of(measured, side),
        "uri": layout.uri,
        "kind": layout.kind,
        "reader": layout.reader,
        "throughput": statistics.median(rates) if rates else None,
        "least": min(rates, default=None),
        "most": max(rates, default=None),
        "tokens_per_s": statistics.median(rates) * proof.num_tokens / proof.num_delivered if rates and proof.num_tokens else None,
        "payload_MBps": statistics.median(rates) * statistics.median(payload) / 1e6 if rates else None,
        "au": _median([result.found for result in results], "au"),
        "wait_share": _wait_share(found),
        "first_batch_s": statistics.median([_first_batch_s(result) for result in results]) if results else None,
        "startup": _startup(results, timelines),
        "read_amplification": _median([result.found for result in results], "read_amplification"),
        "fetched": _fetched([result.found["fetched"] for result in results if result.found.get("fetched")]),
        **_counted(results),
        "peaks": _peaks([*results, *timelines]),
        "stages": _stages(found.get("stages")),
        "order": results[0].found["order"] if results else None,
        "overhead": _overhead(rates, timelines),
        "cache_labels": _labels([trial for trial in measured.trials if trial.side == side and trial.block is not None]),
        "is_looped": any(result.found["window"]["is_looped"] for result in results) and not fetches_anew(layout),
        "num_failed": sum(trial.side == side and trial.result.status != "ok" for trial in measured.trials),
    }


def amplify(result: TrialResult, proof: Proof) -> None:
    """Adds what was fetched over what was delivered: of a device in the window, of a bucket since the data was opened."""
    if result.status != "ok":
        return
    remote = result.found.get("fetched")
    fetched = remote["bytes"] if remote else (result.watched.get("counters") or {}).get("read_bytes")
    num_samples = remote["samples"] if remote else result.found["window"]["samples"]
    payload = num_samples * proof.payload_bytes / max(1, proof.num_delivered)
    result.found["read_amplification"] = fetched / payload if fetched is not None and payload else None
    if result.found["read_amplification"] is None:
        result.not_measured.append({"metric": "read_amplification", "reason": "the system counted no reads of the trial"})


def label_of_window(trial: Trial) -> str:
    """Of the page cache while the window was measured, where ``label`` is of the trial's begin. What a bucket is asked for again is no
    more at hand than at first.

    A window of whole passes over data that was read before is ``warm``, if memory holds the data, and never cold; ``mixed`` where
    its first pass is the first of all.
    """
    label, window = str(trial.cache["label"]), trial.result.found.get("window")
    if window is None or not window["is_looped"] or label in ("warm", "unknown") or fetches_anew(trial.result.spec.layout):
        return label
    resident = trial.cache.get("resident_after")
    was_read = window.get("passes_before", 1) > 0
    return "warm" if was_read and (resident is None or resident >= _WARM_SHARE) else "mixed"


def _labels(trials: Sequence[Trial]) -> list[str]:
    return sorted({label_of_window(trial) for trial in trials})


def name_of(measured: Measured, side: int) -> str:
    """The kind alone where no other side has it; else with the reader, and with the place where that is the same, too."""
    layout, others = measured.layouts[side], [other for i, other in enumerate(measured.layouts) if i != side]
    if any((other.kind, other.reader) == (layout.kind, layout.reader) for other in others):
        number = sum(other == layout for other in measured.layouts[:side])
        return f"{layout.uri} by {layout.reader}" + (f", again ({number + 1})" if number else "")
    return layout.name


def _median(parts: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [part[name] for part in parts if part.get(name) is not None]
    return statistics.median(values) if values else None


def _counted(results: Sequence[TrialResult]) -> dict[str, float | None]:
    """Of the window: processors used, and what was read from the device."""
    counters = [result.watched.get("counters") or {} for result in results]
    return {name: _median(counters, name) for name in ("cpu_util", "disk_read_MBps")}


def _fetched(found: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Of a bucket: medians over trials; None of data that is on this machine."""
    if not found:
        return None
    latencies = [one["latency_ms"] for one in found if one["latency_ms"] is not None]
    rates = [
        {
            "bytes_per_sample": one["bytes"] / max(1, one["samples"]),
            "requests_per_sample": None if one["requests"] is None else one["requests"] / max(1, one["samples"]),
        }
        for one in found
    ]
    return {
        **{name: _median(found, name) for name in ("bytes", "requests", "MBps")},
        **{name: _median(rates, name) for name in ("bytes_per_sample", "requests_per_sample")},
        "latency_ms": {name: _median(latencies, name) for name in ("mean", "p50", "p99")} if latencies else None,
    }


def _startup(results: Sequence[TrialResult], timelines: Sequence[TrialResult]) -> dict[str, float | None]:
    """Of the trials without instruments; the second epoch also of those with, which alone see it of a long epoch."""
    plain = [result.found["startup"] for result in results]
    timed = [result.found["startup"] for result in timelines]
    found = {name: _median(plain, name) for name in STARTUP}
    return found | {"epoch2_s": found["epoch2_s"] if found["epoch2_s"] is not None else _median(timed, "epoch2_s")}


def _peaks(results: Sequence[TrialResult]) -> dict[str, float | None]:
    """The most that any trial took."""
    peaks = [result.watched.get("peaks") or {} for result in results]
    return {name: max((part[name] for part in peaks if part.get(name) is not None), default=None) for name in PEAKS}


def _overhead(rates: Sequence[float], timelines: Sequence[TrialResult]) -> dict[str, Any] | None:
    if not rates or not timelines:
        return None
    timed = [one.found["throughput"] for one in timelines]
    return asdict(instrumentation_overhead(rates, timed, timelines[0].found.get("timers_share")))


def _wait_share(found: dict[str, Any]) -> float | None:
    """Of the timeline; between two passes over the data the loop waits, too."""
    wait, window = (found.get("shares") or {}).get("wait"), found.get("window")
    return None if wait is None or window is None else min(1.0, wait + window["restart_s"] / window["wall_s"])


def _first_batch_s(result: TrialResult) -> float:
    startup = result.found["startup"]
    return float(startup["iter_s"] + startup["first_batch_s"])


def _stages(stages: dict[str, dict[str, float]] | None) -> list[dict[str, Any]]:
    """Stages by their part of the workers' measured time, largest first."""
    total = sum(stage["wall_s"] for stage in stages.values()) if stages else 0.0
    if not stages or not total:
        return []
    rows = [
        {"name": name, "share": stage["wall_s"] / total, **{key: stage[key] for key in ("wall_s", "cpu_s", "blocked_s")}}
        for name, stage in stages.items()
    ]
    return sorted(rows, key=lambda row: -row["share"])
