"""Which settings to use, why, and what else could be taken: in words of both languages, with the snippet to type."""

import importlib.util
from dataclasses import replace
from typing import Any

from shardtools.bench.report.edge import is_rising_at
from shardtools.bench.report.verdict_words import percent
from shardtools.bench.search import TIME_BUDGET, Cell, Duel, Found
from shardtools.bench.search.advice import Advice, Words, both, name_of
from shardtools.bench.search.limits import limits_of, waits_of, windows_of
from shardtools.bench.search.snippet import Call, shared_memory_lines, snippet
from shardtools.units import format_bytes, plural

_LIGHT_SHARE = 0.9
"""Of the recommended rate, for a setting that takes less memory."""


def recommend(advice: Advice) -> dict[str, Any] | None:
    """``recommendation`` of the report; None where no cell went well."""
    cell = advice.found.recommended
    if cell is None:
        return None
    foreseen = advice.foreseen(cell)
    bound_bytes = max(foreseen.shm_bound_bytes if foreseen else 0, advice.wanted_shm_bytes)
    return {
        "params": _params(advice, cell),
        "predicted": None if foreseen is None else foreseen.as_json(),
        "snippet": snippet(_call(advice, cell)),
        "shared_memory": shared_memory_lines(bound_bytes),
        "why": _why(advice, cell),
        "alternatives": _alternatives(advice, cell),
        "is_change": advice.found.is_change,
        "is_known": _is_known(advice.found),
    }


def _is_known(found: Found) -> bool:
    """Whether the current settings were held against others: kept for want of time they are not the best, but the only ones known."""
    has_fought = found.confirmation is not None and found.confirmation.comparison is not None
    return found.is_fed or found.is_change or has_fought or found.stopped != TIME_BUDGET


def _params(advice: Advice, cell: Cell) -> dict[str, Any]:
    settings = advice.settings_of(cell)
    names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order")
    return {name: getattr(settings, name) for name in names}


def _call(advice: Advice, cell: Cell) -> Call:
    base = advice.base
    methods = [result.found["start_method"] for result in advice.results if result.status == "ok"]
    return Call(
        advice.settings_of(cell),
        base.workload,
        base.layout,
        base.consumer.copy if base.consumer.device == "cuda" else None,
        methods[-1] if methods else base.settings.start_method,
        importlib.util.find_spec("cv2") is not None,
    )


def _why(advice: Advice, cell: Cell) -> list[Words]:
    found, record = advice.found, advice.found.record
    if found.is_fed:
        au = record.median_of(cell, "au") or 0.0
        return [both(f"The device is fed (AU {percent(au)}); change nothing.", f"设备已喂饱（AU {percent(au)}），无需改动。")]
    why = _of_knee(advice, cell)
    if not _is_known(found):
        why.append(
            both(
                f"Nothing surer than the current settings was found: {plural(record.num_trials, 'trial')} fitted into the time; "
                "keep them for now, and give the search more with --matrix-seconds.",
                f"尚不能断定有更好的设置：时间内只完成了 {record.num_trials} 次试验；暂且保留当前设置，可用 --matrix-seconds 给更多时间。",
            )
        )
    elif found.confirmation is None and not found.is_change:
        why.append(both("The current settings are among the best tried; change nothing.", "当前设置已属最佳之列，无需改动。"))
    why += _of_duel(found.confirmation, found.is_change)
    why += _of_saving(advice, cell)
    why += limits_of(advice, cell)
    why += waits_of(advice, cell)
    why += windows_of(advice)
    if found.stopped == TIME_BUDGET and _is_known(found):
        why.append(
            both(
                "Time was up before all was tried: give it more with --matrix-seconds to be surer.",
                "时间用尽，未能测完所有设置；用 --matrix-seconds 给更多时间会更可靠。",
            )
        )
    return why


def _of_knee(advice: Advice, cell: Cell) -> list[Words]:
    """No knee where the last step still brought something: then it is the best of what was tried."""
    found, record = advice.found, advice.found.record
    rate, best = record.rate(cell), found.best
    best_rate = record.rate(best) if best else None
    if not rate or not best_rate or found.knee != cell or len(record.known()) < 2:
        return []
    told, told_zh = f"{name_of(cell)}: {rate:,.0f} samples/s", f"{name_of(cell)}：{rate:,.0f} 样本/秒"
    count, share = len(record.known()), percent(rate / best_rate)
    curve = [(other.num_workers, known) for other, known in record.known().items() if _is_beside(other, cell)]
    if is_rising_at(cell.num_workers, curve):
        edge = f"the best of {count} settings tried, at the edge of the search; still rising"
        return [both(f"{told}, {edge}.", f"{told_zh}，为已测 {count} 组设置中最佳，位于搜索边界，仍在上升。")]
    return [
        both(
            f"{told}, {share} of the best of {count} settings tried, with the fewest workers that reach 95 % of it.",
            f"{told_zh}，为已测 {count} 组设置中最佳值的 {share}，是达到其 95 % 所需的最少 worker 数。",
        )
    ]


def _is_beside(other: Cell, cell: Cell) -> bool:
    """On the same curve: other workers, all else alike."""
    return not other.num_workers or replace(other, num_workers=cell.num_workers) == cell


def _of_duel(fought: Duel | None, is_change: bool) -> list[Words]:
    if fought is None:
        return []
    pair = f"{name_of(fought.second)} against the current {name_of(fought.first)}"
    pair_zh = f"{name_of(fought.second)} 相比当前的 {name_of(fought.first)}"
    compared = fought.comparison
    if compared is None:
        return [both(f"{pair}: too few paired trials to confirm it.", f"{pair_zh}：成对试验太少，未能确认。")]
    said = both(f"{pair}: {compared.sentence}.", f"{pair_zh}：{compared.ratio:.2f} 倍（成对试验 {compared.n} 组，p = {compared.p:.3f}）。")
    if is_change:
        return [said]
    return [said, both("That is no clear gain over the current settings; change nothing.", "相比当前设置没有明显提升，无需改动。")]


def _of_saving(advice: Advice, cell: Cell) -> list[Words]:
    saving = advice.found.saving
    if cell.num_workers == 0 or saving.seconds is None:
        return []
    new, new_zh = "", ""
    if saving.epoch_share is not None:  # as the table of settings has it: of the rate with workers that are kept
        share = percent(1 / (1 + saving.epoch_share))
        new, new_zh = f"; new workers each epoch give {share} of the rate, computed", f"；每个 epoch 新建 worker 时速率为其 {share}（推算）"
    return [
        both(
            f"persistent_workers=True saves {saving.seconds:.2f} s at the start of each epoch{new}; workers keep their memory meanwhile.",
            f"persistent_workers=True 每个 epoch 开始时节省 {saving.seconds:.2f} 秒{new_zh}；期间 worker 会一直占用内存。",
        )
    ]


def _alternatives(advice: Advice, cell: Cell) -> list[dict[str, Any]]:
    """The fastest, the one that takes least shared memory, the current one, and the knee: each once, none that is recommended."""
    found, known = advice.found, advice.found.record.known()
    rate = known.get(cell)
    listed: dict[Cell, Words] = {}
    best = found.best
    if best is not None and rate and known.get(best, 0.0) > rate:
        gain = known[best] / rate - 1
        listed[best] = both(f"the fastest tried, +{percent(gain)}", f"已测最快，+{percent(gain)}")
    if found.knee is not None and found.knee != cell:
        listed.setdefault(found.knee, both("the fewest workers with 95 % of the best", "达到最佳值 95 % 的最少 worker 数"))
    lightest = _lightest(advice, cell)
    if lightest is not None:
        listed.setdefault(lightest, _less_memory(advice, lightest))
    listed.setdefault(found.current, both("the current settings", "当前设置"))
    listed.pop(cell, None)
    return [
        {"params": _params(advice, other), "throughput": known.get(other), "why": why}
        for other, why in listed.items()
        if other in known or other == found.current
    ]


def _lightest(advice: Advice, cell: Cell) -> Cell | None:
    """Least shared memory of those that lose no more than a tenth; None where none takes less."""
    known = advice.found.record.known()
    sizes = {other: foreseen.shm_bound_bytes for other in known if (foreseen := advice.foreseen(other)) is not None}
    if cell not in sizes or cell not in known:
        return None
    light = [other for other in sizes if known[other] >= _LIGHT_SHARE * known[cell] and sizes[other] < sizes[cell]]
    return min(light, key=lambda other: (sizes[other], -known[other]), default=None)


def _less_memory(advice: Advice, cell: Cell) -> Words:
    foreseen = advice.foreseen(cell)
    text = format_bytes(foreseen.shm_bound_bytes) if foreseen else "?"
    return both(f"least shared memory, {text}", f"共享内存最少，{text}")
