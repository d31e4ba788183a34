"""Beside every null of a report its reason, by its exact place, in ``not_measured`` of the trial that holds it or of the report.

A place is written ``sides[0].au``; ``[]`` in it stands for any number, and the place of a part stands for all that is in it. Inside a
trial it begins at the trial. A part with a ``not_measured`` of its own, such as the proof of a page cache, explains itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NOT_GIVEN = "not given, so the default holds"
_ONE_PAIR = "a single pair has no interval"
_FEW_BASELINES = "fewer than three repeats, and fewer than three baselines, have no interval"
_NO_KEYS = "rows that are made while reading have no keys, and nobody knows their number before"
_NO_ACCELERATOR = "n/a (no accelerator)"
_NO_CELL = "no trial of this cell went well"

_OWN_FOLDER = "each trial has a folder of its own for local copies, or its reader keeps none"

_OF_TRIALS = {
    "found.pinning.num_pinned": "n/a (no accelerator), so pinning has no effect",
    "found.pinning.unpinned": "n/a (no accelerator), so pinning has no effect",
    "found.pinning.advice": "nothing is to be advised",
    "found.window.drift": "the window is whole passes, or has too few steps to be halved",
    "found.window.throughput_with_restarts": "the window lies inside one pass, so that no restart is in it",
    "found.window.ahead_share": "the number of samples of a pass is not known",
    "found.window.pass_samples": "no pass over the data ended within the trial",
    "found.timers_share": "no timers were on",
}
"""What a null means at these places, whatever the trial."""

_OF_REPORTS = {
    "workload.n_samples": _NO_KEYS,
    "workload.id_hash": _NO_KEYS,
    "workload.decode_digest": _NO_KEYS,
    "workload.proofs[].count": _NO_KEYS,
    "workload.proofs[].id_hash": _NO_KEYS,
    "workload.proofs[].decode_digest": _NO_KEYS,
    "workload.proofs[].num_tokens": "samples are no rows of tokens",
    "workload.layouts[].cache_folder": _OWN_FOLDER,
    "trials[].spec.layout.cache_folder": _OWN_FOLDER,
    "workload.batch_bytes": "no trial went well",
    "workload.tensors_per_batch": "no trial went well",
    "settings.start_method": "not given, so Python's own holds",
    "consumer.model": NOT_GIVEN,
    "trials[].block": "a trial with instruments belongs to no block",
    "cache.resident_before": "no trial could tell what was in the page cache",
    "comparisons[].ci": _ONE_PAIR,
    "ablation[].ci": _FEW_BASELINES,
    "ablation[].ci_by": _FEW_BASELINES,
    "gates[].got": "nothing was measured that the bound could be held against",
    "ceilings": "no verdict was asked for, so nothing was probed",
    "verdict": "no verdict was asked for",
    "matrix": "settings were not searched: --matrix does",
    "recommendation": "settings were not searched: --matrix does",
    "verdicts[].stage": "the verdict is of no single stage",
    "verdicts[].gain": "no change was measured that gains",
    "verdicts[].gain.ci": "worked out from rates that have no interval",
    "verdicts[].gain.then": "what binds next was not measured",
    "verdicts[].remedies[].options": "nothing of bench or of the loader is typed for it",
    "verdicts[].rates.F": "the consumer `none` only drains",
    "verdicts[].rates.G": "the consumer `none` only drains",
    "verdicts[].rates.H": "n/a (no consumer, or no accelerator)",
    "verdicts[].rates.L": "the loader was not measured by itself for this verdict",
    "matrix.knee": "no cell was measured",
    "matrix.best": "no cell was measured",
    "matrix.cells[].throughput": _NO_CELL,
    "matrix.cells[].predicted": "no trial had told yet what a batch takes",
    "matrix.cells[].predicted.ram_bytes": "memory of the processes was not told",
    "matrix.cells[].ci": "fewer than two trials have no interval",
    "matrix.cells[].wait_p99_ms": "trials without instruments time no steps",
    "matrix.cells[].measured.shm": "the trials of this cell were not watched",
    "matrix.cells[].measured.fd": "the trials of this cell were not watched",
    "matrix.cells[].measured.rss": "the trials of this cell were not watched",
    "matrix.cells[].measured.pinned": _NO_ACCELERATOR,
    "recommendation.alternatives[].throughput": "it was not tried",
    "recommendation.predicted": "no trial had told what a batch takes",
    "recommendation.predicted.ram_bytes": "memory of the processes was not told",
    "recommendation.params.start_method": "not given, so Python's own holds",
}

Json = dict[str, Any]
Reasons = list[dict[str, str]]


def explain(data: Json) -> None:
    """Writes exact places into all ``not_measured`` of a report, whose entries may name the end of a place, and adds what is known of
    a place whatever was measured. A null of which nothing is known stays without a reason, which is a defect that tests find."""
    for trial in data["trials"]:
        explain_trial(trial)
    found = list(data["not_measured"])
    known = {entry["metric"] for entry in found}
    for place in nulls({name: part for name, part in data.items() if name != "trials"}):
        if place in known or _explains_itself(data, place):
            continue
        entry = _of_report(place, data)
        if entry is not None and entry["metric"] not in known:
            known.add(entry["metric"])
            found.append(entry)
    for place in dict.fromkeys(_any(place) for place in nulls(_asked(data["trials"]))):
        found.append({"metric": place, "reason": _OF_REPORTS.get(place, NOT_GIVEN)})
    data["not_measured"] = found


def explain_trial(trial: Json) -> None:
    """A trial's own list: each null of what was found and watched by its place within the trial."""
    listed: Reasons = trial["not_measured"]
    found, used = [], set()
    for place in nulls({"found": trial["found"], "watched": trial["watched"]}):
        entry = _ending(place, listed)
        reason = entry["reason"] if entry else _OF_TRIALS.get(_any(place))
        if entry:
            used.add(entry["metric"])
        if reason is not None:
            found.append({"metric": place, "reason": reason})
    trial["not_measured"] = found + [entry for entry in listed if entry["metric"] not in used]


def nulls(value: Any, place: str = "") -> Iterator[str]:
    """The places of everything that is None."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from nulls(part, f"{place}.{name}" if place else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, part in enumerate(value):
            yield from nulls(part, f"{place}[{number}]")
    elif value is None:
        yield place


def _of_report(place: str, data: Json) -> dict[str, str] | None:
    anywhere = _any(place)
    if anywhere.startswith("verdict."):  # the first of the verdicts, again
        anywhere = anywhere.replace("verdict.", "verdicts[].", 1)
    reason = _OF_REPORTS.get(anywhere)
    cell = re.match(r"matrix\.cells\[(\d+)\]", place)
    if cell and (message := data["matrix"]["cells"][int(cell[1])]["message"]):
        return {"metric": cell[0], "reason": message}
    if reason is None and anywhere.startswith("workload."):
        reason = NOT_GIVEN
    return None if reason is None else {"metric": _any(place), "reason": reason}


def _explains_itself(data: Json, place: str) -> bool:
    """Whether a part on the way has a list of its own that names the rest of the way."""
    part: Any = data
    steps = re.findall(r"[^.\[\]]+|\[\d+\]", place)
    for number, step in enumerate(steps[:-1], 1):
        part = part[int(step[1:-1])] if step[0] == "[" else part[step]
        if isinstance(part, Mapping) and "not_measured" in part:
            rest = "".join(f".{one}" if one[0] != "[" else one for one in steps[number:])[1:]
            return any(entry["metric"] == rest for entry in part["not_measured"])
    return False


def _asked(trials: Sequence[Json]) -> Json:
    """What a trial was asked, and where it stands: the same holds of all trials."""
    return {"trials": [{name: trial[name] for name in ("block", "spec")} for trial in trials]}


def _any(place: str) -> str:
    return re.sub(r"\[\d+\]", "[]", place)


def _ending(place: str, listed: Reasons) -> dict[str, str] | None:
    """The entry that names the place, or its end from a dot on; of several the longest."""
    gpu = re.search(r"gpus\[(\d+)\]\.(\w+)$", place)
    names = {place, *(place[dot + 1 :] for dot in (match.start() for match in re.finditer(r"\.", place)))}
    if gpu:
        names.add(f"gpu{gpu[1]}_{gpu[2].replace('memory_peak_bytes', 'memory_bytes')}")
    fitting = [entry for entry in listed if entry["metric"] in names]
    return max(fitting, key=lambda entry: len(entry["metric"]), default=None)
