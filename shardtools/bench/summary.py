"""The report's data, put together from what was measured: see ``schema.json`` for what each part is."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shardtools import __version__
from shardtools.bench.answers import answer
from shardtools.bench.definitions import DEFINITIONS
from shardtools.bench.equality import Proof
from shardtools.bench.measured import Measured, Trial
from shardtools.bench.noise import Noise
from shardtools.bench.side_figures import amplify, side_figures
from shardtools.bench.statistics import Comparison
from shardtools.bench.trial import TrialResult

SCHEMA = "shardtools.bench/1"
_STEADY = 0.05
_LATER = "this version measures, and does not attribute yet"


def report_of(
    measured: Measured, proofs: Sequence[Proof], proved: list[str], machine: tuple[dict[str, Any], Noise], seconds: float
) -> dict[str, Any]:
    """As JSON. ``seconds``: of the whole run."""
    request, (ledger, noise) = measured.request, machine
    for trial in measured.trials:
        amplify(trial.result, proofs[trial.side])
    sides = [side_figures(measured, side, proof) for side, proof in enumerate(proofs)]
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
        "trials": [_trial(number, trial) for number, trial in enumerate(measured.trials)],
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


def _workload(measured: Measured, proofs: Sequence[Proof], proved: list[str]) -> dict[str, Any]:
    first, workload = proofs[0], measured.workload
    found = [trial.result.found for trial in measured.trials if trial.result.status == "ok"]
    batch: dict[str, Any] = found[0]["batch"] if found else {}
    orders = dict.fromkeys(one["order"] for one in found)
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
    proofs = [trial.cache for trial in measured.trials]
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


def _trial(number: int, trial: Trial) -> dict[str, Any]:
    place = {"side": trial.side, "block": trial.block, "order_in_block": trial.order_in_block}
    return {"id": number, **place, "cache": trial.cache, **trial.result.as_json()}


def _notes(measured: Measured, data: dict[str, Any]) -> list[str]:
    """What a reader of the figures must know."""
    notes = list(data["cache"]["caveats"])
    for side in data["sides"]:
        if side["overhead"] and side["overhead"]["warning"]:
            notes.append(f"{side['name']}: {side['overhead']['warning']}")
    for number, side in enumerate(data["sides"]):
        results = [trial.result for trial in measured.trials if trial.side == number]
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
