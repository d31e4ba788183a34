"""What bounds a recommendation: settings beyond it that were not measured, uneven waits, and windows that are too short."""

from dataclasses import replace

from shardtools.bench.prediction import SAFE_SHARE, exceeded
from shardtools.bench.report.chinese import translated
from shardtools.bench.search import Cell
from shardtools.bench.search.advice import Advice, Words, both, name_of
from shardtools.units import format_bytes

_UNEVEN = 5.0
"""The longest waits over the mean step: from here on order costs."""


def limits_of(advice: Advice, cell: Cell) -> list[Words]:
    """Along each axis what lies beyond the setting and was not measured: more workers, then a longer queue."""
    if advice.wanted_shm_bytes:  # of shared memory the verdict tells
        return []
    return [*_of_workers(advice, cell), *_of_queue(advice, cell)]


def _of_workers(advice: Advice, cell: Cell) -> list[Words]:
    """Nothing where the search ended for want of a gain."""
    found, space = advice.found, advice.space
    if not found.stopped.startswith("limit: "):
        return []
    most = max(other.num_workers for other in found.record.known())
    for other, outcomes in found.record.outcomes.items():
        failed = next((outcome for outcome in outcomes if outcome.status != "ok"), None)
        if failed is not None and other.num_workers > most:
            return [
                both(
                    f"More workers may be faster, but {name_of(other)} ended as {failed.status}: {failed.message}.",
                    f"更多 worker 可能更快，但 {name_of(other)} 的结果是 {translated(failed.status)}：{translated(failed.message)}。",
                )
            ]
    if most < space.max_workers or cell.num_workers < most:
        return []
    return [
        both(
            f"Workers beyond {most} were not tried (limit: {space.cap}).",
            f"没有试过多于 {most} 个 worker（{translated(f'limit: {space.cap}')}）。",
        )
    ]


def _of_queue(advice: Advice, cell: Cell) -> list[Words]:
    """With as many workers."""
    if not cell.num_workers:
        return []
    longer = [factor for factor in advice.space.prefetch_factors if factor > cell.prefetch_factor]
    others = [replace(cell, prefetch_factor=factor) for factor in longer]
    if not others or any(other in advice.found.record.known() for other in others):
        return []
    first = f"prefetch_factor={others[0].prefetch_factor}"
    foreseen, limits = advice.foreseen(others[0]), advice.resources()
    if foreseen is not None and limits.shm_free_bytes is not None and "shm" in exceeded(foreseen, limits):
        needed, safe = format_bytes(foreseen.shm_bound_bytes), format_bytes(int(SAFE_SHARE * limits.shm_free_bytes))
        return [
            both(
                f"A longer queue was refused: {first} needs {needed} of /dev/shm, {safe} is safe.",
                f"更长的队列被拒绝：{first} 需要 {needed} 的 /dev/shm，安全用量为 {safe}。",
            )
        ]
    failed = next((outcome for outcome in advice.found.record.outcomes.get(others[0], ()) if outcome.status != "ok"), None)
    if failed is not None:
        return [
            both(
                f"A longer queue, {first}, ended as {failed.status}: {failed.message}.",
                f"更长的队列 {first} 的结果是 {translated(failed.status)}：{translated(failed.message)}。",
            )
        ]
    return [both(f"A longer queue ({first}) was not tried.", f"没有试过更长的队列（{first}）。")]


def waits_of(advice: Advice, cell: Cell) -> list[Words]:
    record = advice.found.record
    p99, mean = record.median_of(cell, "wait_p99_ms"), record.median_of(cell, "mean_step_ms")
    if p99 is None or not mean or p99 < _UNEVEN * mean or cell.num_workers < 2 or not advice.base.settings.in_order:
        return []
    return [
        both(
            f"One step in a hundred waits {p99 / mean:.0f} times as long as a mean step takes: in_order=False (torch >= 2.6) lets batches "
            "that are ready pass a slow one, where the order of samples may change.",
            f"每百步中有一步的等待时间是平均步长的 {p99 / mean:.0f} 倍：若允许改变样本顺序，可用 in_order=False（torch >= 2.6）。",
        )
    ]


def windows_of(advice: Advice) -> list[Words]:
    """What windows that are too short do to the table."""
    windows = [result.found["window"] for result in advice.results if result.status == "ok" and result.spec.mode == "throughput"]
    num_short = sum(window["is_short"] or window["is_looped"] for window in windows)
    if not num_short:
        return []
    return [
        both(
            f"In {num_short} of {len(windows)} trials the window was shorter than it should be, or read data again: "
            "differences of a few percent are uncertain.",
            f"{len(windows)} 次试验中有 {num_short} 次测量窗口偏短，或重读了数据：几个百分点的差异不可靠。",
        )
    ]
