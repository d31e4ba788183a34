"""The report's data, put together from what was measured: see ``schema.json`` for what each part is."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardtools import __version__
from shardtools.bench.answers import answer
from shardtools.bench.definitions import DEFINITIONS
from shardtools.bench.equality import Proof
from shardtools.bench.noise import Noise
from shardtools.bench.request import BenchRequest
from shardtools.bench.spec import Layout, Workload
from shardtools.bench.statistics import Comparison
from shardtools.bench.trial import TrialResult, instrumentation_overhead

SCHEMA = "shardtools.bench/1"
_STEADY = 0.05
_LATER = "this version measures, and does not attribute yet"

TrialRow = tuple[int, int | None, int, dict[str, Any], TrialResult]
"""Side, block (None: timeline), place in the block, the page cache it began with, what came of it."""


@dataclass(frozen=True)
class Measured:
    """All that ran."""

    request: BenchRequest
    layouts: list[Layout]
    workload: Workload
    trials: list[TrialRow]
    comparisons: list[tuple[int, int, Comparison]]

    def of(self, side: int, is_timeline: bool) -> list[TrialResult]:
        """The trials of a side that went well."""
        found = (result for of, block, _, _, result in self.trials if of == side and (block is None) == is_timeline)
        return [result for result in found if result.status == "ok"]


def report_of(
    measured: Measured, proofs: Sequence[Proof], proved: list[str], machine: tuple[dict[str, Any], Noise], seconds: float
) -> dict[str, Any]:
    """As JSON. ``seconds``: of the whole run."""
    request, (ledger, noise) = measured.request, machine
    for side, _, _, _, result in measured.trials:
        _amplify(result, proofs[side])
    sides = [_side(measured, side, proof) for side, proof in enumerate(proofs)]
    missing = [*ledger.pop("not_measured"), *(entry.as_json() for entry in noise.not_measured), *_later(), *_of_sides(sides)]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "shardtools": __version__,
        "seconds": seconds,
        "environment": ledger,
        "workload": _workload(measured, proofs, proved),
        "settings": asdict(request.settings),
        "consumer": asdict(request.consumer),
        "cache": _cache(measured),
        "plan": {"rule": request.plan.rule(), "seed": request.plan.seed},
        "noise": noise.as_json(),
        "definitions": DEFINITIONS,
        "sides": sides,
        "trials": [_trial(number, row) for number, row in enumerate(measured.trials)],
        "comparisons": [_compared(sides[one], sides[other], compared) for one, other, compared in measured.comparisons],
        "ablation": [],
        "ceilings": None,
        "verdict": None,
        "recommendation": None,
    }
    data["notes"] = _notes(measured, data)
    data["not_measured"] = _unique(missing)
    return data


def _compared(one: dict[str, Any], other: dict[str, Any], compared: Comparison) -> dict[str, Any]:
    is_of_shards = one["kind"] in ("files", "jsonl") and other["kind"] in ("wds", "mds")
    words = {"a": one["name"], "b": other["name"], "answer": answer(one["name"], other["name"], compared, is_of_shards)}
    return {**words, **compared.as_json()}


def _side(measured: Measured, side: int, proof: Proof) -> dict[str, Any]:
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
        "num_failed": sum(of == side and result.status != "ok" for of, _, _, _, result in measured.trials),
    }


def _amplify(result: TrialResult, proof: Proof) -> None:
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
        return f"{layout.uri} by {layout.reader}"
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


def _workload(measured: Measured, proofs: Sequence[Proof], proved: list[str]) -> dict[str, Any]:
    first, workload = proofs[0], measured.workload
    batch: dict[str, Any] = next((result.found["batch"] for _, _, _, _, result in measured.trials if result.status == "ok"), {})
    orders = dict.fromkeys(result.found["order"] for _, _, _, _, result in measured.trials if result.status == "ok")
    return {
        **asdict(workload),
        "layouts": [asdict(layout) for layout in measured.layouts],
        "n_samples": first.count,
        "id_hash": first.id_hash,
        "decode_digest": first.decode_digest,
        "batch_bytes": batch.get("bytes"),
        "tensors_per_batch": batch.get("tensors"),
        "order": "shuffled" if workload.shuffle else "sequential",
        "orders": list(orders),
        "proofs": [proof.as_json() for proof in proofs],
        "proved": proved,
    }


def _cache(measured: Measured) -> dict[str, Any]:
    """All trials together: the label, and the most that was resident before any of them."""
    proofs = [cache for _, _, _, cache, _ in measured.trials]
    labels = sorted({proof["label"] for proof in proofs})
    residents = [proof["resident_before"] for proof in proofs if proof.get("resident_before") is not None]
    resident = max(residents, default=None)
    shown = "" if resident is None else f", {100 * resident:.1f} % resident" if measured.request.cache != "warm" else ""
    caveats = list(dict.fromkeys(text for proof in proofs for text in (*proof["caveats"], proof["why"]) if text))
    return {
        "wanted": measured.request.cache,
        "labels": labels,
        "resident_before": resident,
        "line": "/".join(labels) + shown,
        "caveats": caveats,
    }


def _trial(number: int, row: TrialRow) -> dict[str, Any]:
    side, block, place, cache, result = row
    return {"id": number, "side": side, "block": block, "order_in_block": place, "cache": cache, **result.as_json()}


def _notes(measured: Measured, data: dict[str, Any]) -> list[str]:
    """What a reader of the figures must know."""
    notes = list(data["cache"]["caveats"])
    for side in data["sides"]:
        if side["overhead"] and side["overhead"]["warning"]:
            notes.append(f"{side['name']}: {side['overhead']['warning']}")
    for number, side in enumerate(data["sides"]):
        results = [result for of, _, _, _, result in measured.trials if of == number]
        notes += [f"{side['name']}: {text}" for result in results for text in _told(result)]
        notes += [f"{side['name']}: {text}" for text in _windows([result.found["window"] for result in results if result.status == "ok"])]
    return list(dict.fromkeys(note.rstrip(".") for note in [*notes, *_uneven(measured, data["sides"])]))


def _uneven(measured: Measured, sides: Sequence[dict[str, Any]]) -> list[str]:
    """A side that read its data again had it in memory; beside one that did not, it looks too fast."""
    is_looped = [any(result.found["window"]["is_looped"] for result in measured.of(side, is_timeline=False)) for side in range(len(sides))]
    return [
        f"{sides[one]['name']} and {sides[other]['name']}: only one read its data again, from memory; give more samples or --cache warm"
        for one, other, _ in measured.comparisons
        if is_looped[one] != is_looped[other]
    ]


def _told(result: TrialResult) -> list[str]:
    if result.status != "ok":
        return [f"{result.status}: {result.message}"]
    return [*result.found["limits"], *result.found["warnings"], *result.leftovers]


def _windows(windows: Sequence[dict[str, Any]]) -> list[str]:
    """How often windows were not what they should be, instead of a sentence for each."""
    looped = sum(window["is_looped"] for window in windows)
    counts = {
        "the data ended before the window was long enough": sum(window["is_short"] and not window["is_looped"] for window in windows),
        "the data was read again to fill the window, so most of it was in memory": looped,
        "the rate changed by more than 5 % within the window": sum(abs(window["drift"] or 0.0) > _STEADY for window in windows),
    }
    return [f"in {count} of {len(windows)} trials {what}" for what, count in counts.items() if count]


def _later() -> list[dict[str, str]]:
    return [{"metric": name, "reason": _LATER} for name in ("ceilings", "verdict", "recommendation")]


def _of_sides(sides: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Of a side's figures that are medians over its trials, which have the reasons."""
    reason = "no trial of this side has it; the trials say why"
    return [{"metric": f"{side['name']}: {name}", "reason": reason} for side in sides for name, value in side.items() if value is None]


def _unique(missing: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return list({entry["metric"]: entry for entry in reversed(missing)}.values())[::-1]
