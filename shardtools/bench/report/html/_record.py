"""The record: one column a side, one row for each thing one writes down of an experiment."""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.bench.report.html._answer import compared_sentence
from shardtools.bench.report.html._numbers import NONE, count, milliseconds, rate, size, times
from shardtools.bench.report.html._stages import reason, timeline, verdict_of, without_rate
from shardtools.bench.report.html._words import Say

Json = Mapping[str, Any]

ROWS = ("hardware", "data", "setting", "throughput", "data_time", "h2d_time", "gpu", "cpu", "disk", "shm", "conclusion")


def record(data: Json, say: Say) -> list[tuple[str, list[str]]]:
    """Rows of a heading and a text for each side."""
    columns = [_column(data, say, side) for side in range(len(data["sides"]))]
    return [(say(f"record.{row}"), [column[row] for column in columns]) for row in ROWS]


def _column(data: Json, say: Say, side: int) -> dict[str, str]:
    facts, trial = data["sides"][side], timeline(data, side)
    watched = [one["watched"] for one in data["trials"] if one["side"] == side and one["status"] == "ok" and one["block"] is not None]
    return {
        "hardware": _hardware(data["environment"], side, say),
        "data": _data(data, facts, say),
        "setting": _setting(data, say),
        "throughput": f"{rate(facts['throughput'])} {say('samples/s')}" if facts["throughput"] is not None else without_rate(facts, say),
        "data_time": _step(trial, "data_wait_ms", say),
        "h2d_time": _step(trial, "h2d_copy_ms", say),
        "gpu": _gpu(facts, trial, watched, say),
        "cpu": _cpu(watched, data["environment"], say),
        "disk": _disk(watched) if facts.get("fetched") is None else _bucket(facts, say),
        "shm": _shm(watched),
        "conclusion": _conclusion(data, side, say),
    }


def _data(data: Json, facts: Json, say: Say) -> str:
    many, cache = data["workload"].get("n_samples"), say.reason(data["cache"]["line"])
    return f"{facts['uri']}, {say.side(facts['name'])}, {count(many)} {say('samples')}; {cache}"


def _hardware(machine: Json, side: int, say: Say) -> str:
    gpus = ", ".join(str(gpu.get("name")) for gpu in machine.get("gpu") or []) or say("no GPU")
    storage = machine.get("storage") or []
    place = storage[side] if side < len(storage) else {}
    disk, fs = (place.get("device") or {}).get("name"), (place.get("fs") or {}).get("type")
    memory = (machine.get("mem") or {}).get("total_bytes")
    cores = machine.get("cpus_effective")
    parts = [
        machine.get("cpu"),
        None if cores is None else say("cores used").format(f"{cores:g}"),
        None if memory is None else size(memory),
        gpus,
    ]
    return ", ".join(str(part) for part in [*parts, say("on disk").format(fs, disk) if fs and disk else fs or disk] if part)


def _setting(data: Json, say: Say) -> str:
    settings, consumer = data["settings"], data["consumer"]
    one = f"W {settings['num_workers']}, P {settings['prefetch_factor']}, B {data['workload'].get('batch_size')}"
    two = f"pin_memory={settings['pin_memory']}, persistent_workers={settings['persistent_workers']}"
    return f"{one}, {two}, {say('consumer on').format(consumer['kind'], consumer['device'])}"


def _step(trial: Json | None, metric: str, say: Say) -> str:
    if trial is None:
        return NONE
    found = trial["found"]["steps"].get(metric)
    if found is None:
        return _none(reason(trial, metric), say)
    exposed = trial["found"].get("h2d_exposed_ms") if metric == "h2d_copy_ms" else None
    more = "" if exposed is None else f", {say('exposed')} {milliseconds(exposed)}"
    return f"{say('mean')} {milliseconds(found['mean'])}, p50 {milliseconds(found['p50'])}, p99 {milliseconds(found['p99'])}{more}"


def _none(why: str, say: Say) -> str:
    """No number, and the reason, which may begin with it."""
    return say.reason(why) if why.startswith(NONE) else f"{NONE}: {say.reason(why)}" if why else NONE


def _middle(watched: list[Json], name: str) -> float | None:
    values = [one["counters"][name] for one in watched if (one.get("counters") or {}).get(name) is not None]
    return statistics.median(values) if values else None


def _gpu(facts: Json, trial: Json | None, watched: list[Json], say: Say) -> str:
    parts: list[str] = []
    if facts["au"] is not None:
        parts.append(f"AU {100 * facts['au']:.0f} %")
    used = _middle(watched, "gpu_util_nvml")
    if used is not None:
        parts.append(f"NVML {used:.0f} %")
    memory = [(one.get("peaks") or {}).get("gpu_memory") for one in watched]
    known = [value for value in memory if value is not None]
    if known:
        parts.append(size(max(known)))
    if parts:
        return ", ".join(parts)
    return NONE if trial is None else _none(reason(trial, "gpu_util_nvml"), say)


def _cpu(watched: list[Json], machine: Json, say: Say) -> str:
    used, throttled = _middle(watched, "cpu_util"), _middle(watched, "cpu_throttled_share")
    if used is None:
        return NONE
    cores = machine.get("cpus_effective")
    told = say("cores of").format(f"{used:.1f}", f"{cores:g}") if cores else say("cores used").format(f"{used:.1f}")
    return told + (f", {say('throttled')} {100 * throttled:.0f} %" if throttled else "")


def _disk(watched: list[Json]) -> str:
    found = {name: _middle(watched, name) for name in ("disk_read_MBps", "disk_iops", "await_ms")}
    if found["disk_read_MBps"] is None:
        return NONE
    more = [
        f"{found['disk_iops']:,.0f} IOPS" if found["disk_iops"] is not None else "",
        f"await {found['await_ms']:.2f} ms" if found["await_ms"] else "",
    ]
    return ", ".join(filter(None, [f"{found['disk_read_MBps']:.1f} MB/s", *more]))


def _bucket(facts: Json, say: Say) -> str:
    """What was asked of the store, and how long its answers took."""
    found, latency = facts["fetched"], facts["fetched"]["latency_ms"]
    parts = [f"{found['MBps']:.1f} MB/s {say('from the bucket')}"]
    if facts["read_amplification"] is not None:
        parts.append(f"{times(facts['read_amplification'])} {say('of the samples bytes')}")
    if found["requests_per_sample"] is not None:
        parts.append(f"{found['requests_per_sample']:.3g} {say('requests a sample')}")
    if latency is not None:
        told = ", ".join(f"{name} {milliseconds(latency[name])}" for name in ("mean", "p50", "p99"))
        parts.append(f"{say('latency')} {told}")
    return ", ".join(parts)


def _shm(watched: list[Json]) -> str:
    peaks = [(one.get("peaks") or {}).get("shm") for one in watched]
    known = [peak for peak in peaks if peak is not None]
    return size(max(known)) if known else NONE


def _conclusion(data: Json, side: int, say: Say) -> str:
    verdict = verdict_of(data, side)
    if verdict is not None:
        return str(verdict[f"sentence_{say.lang}"])
    name = data["sides"][side]["name"]
    return next((compared_sentence(one, say) for one in data["comparisons"] if name in (one["a"], one["b"])), NONE)


def rows_of(found: Json) -> Iterator[tuple[str, str]]:
    """What a ledger says, a row an entry; entries without a value are listed where the reasons are."""
    for name, value in found.items():
        if value is not None and value != [] and name != "not_measured":
            yield name.removesuffix("_bytes") if name.endswith("_bytes") else name, _told(name, value)


def _told(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {text}" for key, text in rows_of(value))
    if isinstance(value, list):
        return ", ".join(_told("", one) for one in value)
    if isinstance(value, (int, float)) and name.endswith("_bytes"):
        return size(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
