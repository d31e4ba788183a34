"""Which settings to use, why, and what else could be taken: in words of both languages, with the snippet to type."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.bench.prediction import Prediction
from shardtools.bench.report.chinese import translated
from shardtools.bench.search import TIME_BUDGET, Cell, Duel, Found
from shardtools.bench.search.snippet import Call, shared_memory_lines, snippet
from shardtools.bench.spec import Settings, TrialSpec
from shardtools.bench.trial import TrialResult
from shardtools.units import format_bytes

_UNEVEN = 5.0
"""The longest waits over the mean step: from here on order costs."""
_LIGHT_SHARE = 0.9
"""Of the recommended rate, for a setting that takes less memory."""

Words = dict[str, str]


@dataclass(frozen=True)
class Advice:
    """What advice is made of."""

    found: Found
    base: TrialSpec
    settings_of: Callable[[Cell], Settings]
    foreseen: Callable[[Cell], Prediction | None]
    results: Sequence[TrialResult]


def recommend(advice: Advice) -> dict[str, Any] | None:
    """``recommendation`` of the report; None where no cell went well."""
    cell = advice.found.recommended
    if cell is None:
        return None
    foreseen = advice.foreseen(cell)
    bound_bytes = foreseen.shm_bound_bytes if foreseen else 0
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
        return [_both(f"The device is fed (AU {_percent(au)}); change nothing.", f"设备已喂饱（AU {_percent(au)}），无需改动。")]
    why = []
    rate, best = record.rate(cell), found.best
    best_rate = record.rate(best) if best else None
    if rate and best_rate and found.knee == cell:
        why.append(
            _both(
                f"{_name(cell)}: {rate:,.0f} samples/s, {_percent(rate / best_rate)} of the best of {len(record.known())} settings tried, "
                "with the fewest workers that reach 95 % of it.",
                f"{_name(cell)}：{rate:,.0f} 样本/秒，为已测 {len(record.known())} 组设置中最佳值的 {_percent(rate / best_rate)}，"
                "是达到其 95 % 所需的最少 worker 数。",
            )
        )
    if not _is_known(found):
        why.append(
            _both(
                f"Nothing surer than the current settings was found: {record.num_trials} trials fitted into the time; keep them for now.",
                f"尚不能断定有更好的设置：时间内只完成了 {record.num_trials} 次试验；暂且保留当前设置。",
            )
        )
    elif found.confirmation is None and not found.is_change:
        why.append(_both("The current settings are among the best tried; change nothing.", "当前设置已属最佳之列，无需改动。"))
    why += _of_duel(found.confirmation, found.is_change)
    why += _of_saving(advice, cell)
    why += _of_limit(advice)
    why += _of_waits(advice, cell)
    why += _of_windows(advice)
    if found.stopped == TIME_BUDGET:
        why.append(
            _both(
                "Time was up before all was tried: give it more with --matrix-seconds to be surer.",
                "时间用尽，未能测完所有设置；用 --matrix-seconds 给更多时间会更可靠。",
            )
        )
    return why


def _of_duel(fought: Duel | None, is_change: bool) -> list[Words]:
    if fought is None:
        return []
    pair = f"{_name(fought.second)} against the current {_name(fought.first)}"
    pair_zh = f"{_name(fought.second)} 相比当前的 {_name(fought.first)}"
    compared = fought.comparison
    if compared is None:
        return [_both(f"{pair}: too few paired trials to confirm it.", f"{pair_zh}：成对试验太少，未能确认。")]
    said = _both(f"{pair}: {compared.sentence}.", f"{pair_zh}：{compared.ratio:.2f} 倍（成对试验 {compared.n} 组，p = {compared.p:.3f}）。")
    if is_change:
        return [said]
    return [said, _both("That is no clear gain over the current settings; change nothing.", "相比当前设置没有明显提升，无需改动。")]


def _of_saving(advice: Advice, cell: Cell) -> list[Words]:
    saving = advice.found.saving
    if cell.num_workers == 0 or saving.seconds is None:
        return []
    share = "" if saving.epoch_share is None else f" ({100 * saving.epoch_share:.1f} %)"
    return [
        _both(
            f"persistent_workers=True saves {saving.seconds:.2f} s at the start of each epoch{share}; workers keep their memory meanwhile.",
            f"persistent_workers=True 每个 epoch 开始时节省 {saving.seconds:.2f} 秒{share}；期间 worker 会一直占用内存。",
        )
    ]


def _of_limit(advice: Advice) -> list[Words]:
    """More workers could still be faster, but there is no room for them, or they failed."""
    if not advice.found.stopped.startswith("limit: "):
        return []
    for cell, outcomes in advice.found.record.outcomes.items():
        failed = next((outcome for outcome in outcomes if outcome.status != "ok"), None)
        if failed is not None:
            return [
                _both(
                    f"More workers may be faster, but {_name(cell)} ended as {failed.status}: {failed.message}.",
                    f"更多 worker 可能更快，但 {_name(cell)} 的结果是 {translated(failed.status)}：{translated(failed.message)}。",
                )
            ]
    return []


def _of_waits(advice: Advice, cell: Cell) -> list[Words]:
    record = advice.found.record
    p99, mean = record.median_of(cell, "wait_p99_ms"), record.median_of(cell, "mean_step_ms")
    if p99 is None or not mean or p99 < _UNEVEN * mean or cell.num_workers < 2 or not advice.base.settings.in_order:
        return []
    return [
        _both(
            f"One step in a hundred waits {p99 / mean:.0f} times as long as a mean step takes: in_order=False (torch >= 2.6) lets batches "
            "that are ready pass a slow one, where the order of samples may change.",
            f"每百步中有一步的等待时间是平均步长的 {p99 / mean:.0f} 倍：若允许改变样本顺序，可用 in_order=False（torch >= 2.6）。",
        )
    ]


def _of_windows(advice: Advice) -> list[Words]:
    """What a small set does to the table."""
    windows = [result.found["window"] for result in advice.results if result.status == "ok" and result.spec.mode == "throughput"]
    num_short = sum(window["is_short"] or window["is_looped"] for window in windows)
    if not num_short:
        return []
    return [
        _both(
            f"In {num_short} of {len(windows)} trials the data ended before the window was as long as it should be: "
            "differences of a few percent are uncertain; more samples or --cache warm make them surer.",
            f"{len(windows)} 次试验中有 {num_short} 次在测量窗口结束前数据已读完：几个百分点的差异不可靠；请增加样本或使用 --cache warm。",
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
        listed[best] = _both(f"the fastest tried, +{_percent(gain)}", f"已测最快，+{_percent(gain)}")
    if found.knee is not None and found.knee != cell:
        listed.setdefault(found.knee, _both("the fewest workers with 95 % of the best", "达到最佳值 95 % 的最少 worker 数"))
    lightest = _lightest(advice, cell)
    if lightest is not None:
        listed.setdefault(lightest, _less_memory(advice, lightest))
    listed.setdefault(found.current, _both("the current settings", "当前设置"))
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
    return _both(f"least shared memory, {text}", f"共享内存最少，{text}")


def _name(cell: Cell) -> str:
    if cell.num_workers == 0:
        return "num_workers=0"
    return f"num_workers={cell.num_workers} prefetch_factor={cell.prefetch_factor}" + (" pin_memory=True" if cell.pin_memory else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _both(en: str, zh: str) -> Words:
    return {"en": en, "zh": zh}
