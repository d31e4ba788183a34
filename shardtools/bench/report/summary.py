"""The report's data, put together from what was measured: see ``schema.json`` for what each part is."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shardtools import __version__
from shardtools.bench.copies import keeps_copies
from shardtools.bench.equality import Proof
from shardtools.bench.measured import Measured, Trial
from shardtools.bench.noise import Noise
from shardtools.bench.places import is_remote
from shardtools.bench.report.answers import answer, answer_zh
from shardtools.bench.report.asides import asides
from shardtools.bench.report.definitions import DEFINITIONS
from shardtools.bench.report.doubts import doubts
from shardtools.bench.report.gates import gates_of
from shardtools.bench.report.notes import notes
from shardtools.bench.report.null_reasons import explain
from shardtools.bench.report.side_figures import amplify, label_of_window, side_figures
from shardtools.bench.report.side_reasons import side_reasons
from shardtools.bench.report.verdict_words import side_name_zh
from shardtools.bench.statistics import Comparison

SCHEMA = "shardtools.bench/1"


def report_of(
    measured: Measured, proofs: Sequence[Proof], proved: list[str], machine: tuple[dict[str, Any], Noise], seconds: float
) -> dict[str, Any]:
    """As JSON. ``seconds``: of the whole run."""
    request, (ledger, noise) = measured.request, machine
    for trial in measured.trials:
        amplify(trial.result, proofs[trial.side])
    sides = [side_figures(measured, side, proof) for side, proof in enumerate(proofs)]
    is_noisy = bool(noise.sentences)
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "shardtools": __version__,
        "seconds": seconds,
        "is_interrupted": measured.is_interrupted,
        "environment": {name: part for name, part in ledger.items() if name != "not_measured"},
        "workload": _workload(measured, proofs, proved),
        "settings": asdict(request.settings),
        "consumer": asdict(request.consumer),
        "cache": _cache(measured),
        "plan": {"rule": request.plan.rule(len(measured.layouts)), "seed": request.plan.seed},
        "noise": {**noise.as_json(), "is_noisy": is_noisy},
        "definitions": DEFINITIONS,
        "sides": sides,
        "trials": [_trial(number, trial) for number, trial in enumerate(measured.trials)],
        "comparisons": [_compared((sides[one], sides[other]), compared, is_noisy) for one, other, compared in measured.comparisons],
        "ablation": measured.ablation,
        "ceilings": measured.ceilings,
        "verdicts": measured.verdicts,
        "verdict": measured.verdicts[0] if measured.verdicts else None,
        "asides": asides(measured, [side["name"] for side in sides]),
        "matrix": measured.matrix,
        "recommendation": measured.recommendation,
    }
    data["gates"] = gates_of(request.bounds, data)
    data["notes"] = notes(measured, data)
    figures = [entry for side, proof in enumerate(proofs) for entry in side_reasons(measured, side, sides[side], proof)]
    missing = [*_of_ledger(ledger), *(entry.as_json() for entry in noise.not_measured), *figures, *_never_begun(measured, data)]
    data["not_measured"] = list({entry["metric"]: entry for entry in reversed(missing)}.values())[::-1]
    explain(data)
    return data


def _compared(sides: tuple[dict[str, Any], dict[str, Any]], compared: Comparison, is_noisy: bool) -> dict[str, Any]:
    one, other = sides
    is_of_shards = one["kind"] in ("files", "jsonl") and other["kind"] in ("wds", "mds")
    names, found = (one["name"], other["name"]), doubts(one, other, is_noisy)
    return {
        "a": one["name"],
        "b": other["name"],
        "answer": answer(*names, compared, is_of_shards),
        "answer_zh": answer_zh(side_name_zh(names[0]), side_name_zh(names[1]), compared, is_of_shards),
        "confidence": "low" if found else "normal",
        "doubts": found,
        **compared.as_json(),
    }


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
    """All trials together: what they began with, what was measured in, and the most that was resident before any of them."""
    proofs = [trial.cache for trial in measured.trials]
    labels = sorted({proof["label"] for proof in proofs})
    in_windows = sorted({label_of_window(trial) for trial in measured.trials})
    residents = [proof["resident_before"] for proof in proofs if proof.get("resident_before") is not None]
    resident = max(residents, default=None)
    shown = "" if resident is None else f", {100 * resident:.1f} % resident" if measured.request.cache != "warm" else ""
    again = "" if in_windows == labels else f", {'/'.join(in_windows)} when measured: data was read again"
    caveats = list(dict.fromkeys(text for proof in proofs for text in (*proof["caveats"], proof["why"]) if text))
    return {
        "wanted": measured.request.cache,
        "labels": labels,
        "labels_of_windows": in_windows,
        "resident_before": resident,
        "line": _cache_line("/".join(labels) + shown + again, measured),
        "caveats": caveats,
    }


def _cache_line(line: str, measured: Measured) -> str:
    """Data in a bucket has no pages in the cache of this machine."""
    remote = [layout for layout in measured.layouts if is_remote(layout.uri)]
    if not remote:
        return line
    has_copies = measured.request.cache == "warm" and any(map(keeps_copies, remote))
    told = "the bucket is fetched in each trial" + (", but for local copies that readers keep" if has_copies else "")
    return f"{line}; {told}" if len(remote) < len(measured.layouts) or has_copies else f"not used ({told})"


def _trial(number: int, trial: Trial) -> dict[str, Any]:
    place = {"side": trial.side, "block": trial.block, "order_in_block": trial.order_in_block}
    cache = {**trial.cache, "label_of_window": label_of_window(trial)}
    return {"id": number, **place, "cache": cache, **trial.result.as_json()}


def _never_begun(measured: Measured, data: dict[str, Any]) -> list[dict[str, str]]:
    """What an interrupt came before."""
    parts = ("verdict", "matrix", "recommendation", "ceilings") if measured.is_interrupted else ()
    return [{"metric": part, "reason": "interrupted before it was measured"} for part in parts if data[part] is None]


def _of_ledger(ledger: dict[str, Any]) -> list[dict[str, str]]:
    """By their place in the report; ``storage.fs of URI`` becomes that of the URI's part."""
    uris = [part["uri"] for part in ledger["storage"]]
    return [{"metric": f"environment.{_place(entry['metric'], uris)}", "reason": entry["reason"]} for entry in ledger["not_measured"]]


def _place(metric: str, uris: Sequence[str]) -> str:
    name, of, uri = metric.partition(" of ")
    return name.replace("storage", f"storage[{uris.index(uri)}]", 1) if of and uri in uris else metric
