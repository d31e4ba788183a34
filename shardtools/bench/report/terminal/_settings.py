"""The settings that were searched, and the one to use."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardtools.bench.report.chinese import with_comments
from shardtools.bench.report.columns import padded, wrapped
from shardtools.bench.report.edge import still_rising
from shardtools.bench.report.terminal._text import COLUMNS, Text, code
from shardtools.units import plural

_FIRST = 8
_CELL = 12

Json = Mapping[str, Any]


def recommendation(data: Json, text: Text) -> Iterator[str]:
    """What to type: the call, and how much shared memory a container needs for it."""
    found = data["recommendation"]
    if found is None:
        return
    params = " ".join(f"{name}={value}" for name, value in found["params"].items())
    if found["is_change"]:
        yield from wrapped(f"{text.of('Use: ', '建议：')}{params}", COLUMNS, "     ")
    elif found["is_known"]:
        yield from wrapped(f"{text.of('Change nothing: ', '无需改动：')}{params}", COLUMNS, "     ")
    else:
        yield from wrapped(f"{text.of('Not told yet; keep: ', '尚无结论，暂且保留：')}{params}", COLUMNS, "     ")
    for why in found["why"]:
        yield from text.item(text.full(why[text.lang]))
    if found["is_change"]:
        yield from (
            "",
            *with_comments(found["snippet"].strip("\n"), text.lang).split("\n"),
            "",
        )  # as it stands: Python that is indented cannot be pasted
        if all(verdict["class"] != "shared_memory" for verdict in data["verdicts"]):  # whose remedies say it
            yield text.of("In a container:", "在容器里：")
            for line in found["shared_memory"].values():
                yield from code(with_comments(line, text.lang))


def matrix(data: Json, text: Text) -> Iterator[str]:
    """Workers down, prefetch factor across; a table for each pin_memory and persistent_workers."""
    found = data["matrix"]
    if found is None:
        return
    is_rising = still_rising(found)
    edge = text.of("the best tried, at the edge of the search and still rising", "已测最佳（搜索边界，仍在上升）")
    knee = edge if is_rising else text.of("the knee", "拐点")
    legend = text.of(
        f"samples/s by num_workers W and prefetch_factor P; * {knee}, + the best, ~ worked out:",
        f"样本/秒（行：num_workers W，列：prefetch_factor P；* {knee}，+ 最佳，~ 推算）：",
    )
    yield from wrapped(legend, COLUMNS)
    for held in dict.fromkeys(_held(cell) for cell in found["cells"] if cell["num_workers"]) or [(False, False)]:
        yield from _grid(found, held, text)
    yield from _reasons(found["cells"], text)
    count, full = found["num_trials"], found["full_grid_trials"]
    yield from wrapped(
        text.of(f"{plural(count, 'trial')}; the full grid takes {full}.", f"共 {count} 次测试；完整网格需 {full} 次。"), COLUMNS
    )


def _held(cell: Json) -> tuple[bool, bool]:
    return cell["pin_memory"], cell["persistent_workers"]


def _grid(found: Json, held: tuple[bool, bool], text: Text) -> Iterator[str]:
    """The row W = 0 has one cell, since nothing is read ahead, and no workers that could persist."""
    mine = [cell for cell in found["cells"] if _held(cell) == held or (not cell["num_workers"] and cell["pin_memory"] == held[0])]
    factors = sorted({cell["prefetch_factor"] for cell in mine if cell["num_workers"]}) or [None]
    yield f"  pin_memory={held[0]}, persistent_workers={held[1]}"
    yield " " * _FIRST + "".join(padded(f"P={factor}" if factor else "", _CELL, to_right=True) for factor in factors)
    for num_workers in sorted({cell["num_workers"] for cell in mine}):
        row = [cell for cell in mine if cell["num_workers"] == num_workers]
        cells = [next((cell for cell in row if not num_workers or cell["prefetch_factor"] == factor), None) for factor in factors]
        shown = cells if num_workers else cells[:1]
        line = padded(f"  W={num_workers}", _FIRST) + "".join(padded(_value(found, cell, text), _CELL, to_right=True) for cell in shown)
        yield line.rstrip()


def _value(found: Json, cell: Json | None, text: Text) -> str:
    """Blank where nothing was tried: nothing is interpolated."""
    if cell is None or cell["status"] == "skipped":
        return ""
    if cell["throughput"] is None:
        return text.told(str(cell["status"]))
    marks = {"knee": "*", "best": "+"}
    mark = "".join(sign for name, sign in marks.items() if found[name] is not None and found["cells"][found[name]] == cell)
    return f"{'~' if cell['is_computed'] else ''}{cell['throughput']:,.0f}{mark or ' '}"


def _reasons(cells: Sequence[Json], text: Text) -> Iterator[str]:
    """Why cells have no rate, cells of the same reason together; of those that were skipped the reason alone."""
    places: dict[str, list[str]] = {}
    for cell in cells:
        if cell["throughput"] is None and cell["message"]:
            is_skipped = cell["status"] == "skipped"
            where = text.of("blank", "空白") if is_skipped else f"W={cell['num_workers']} P={cell['prefetch_factor']}"
            places.setdefault(cell["message"], []).append(where)
    for reason, found in places.items():
        yield from text.item(text.full(f"{', '.join(dict.fromkeys(found))}{text.of(': ', '：')}{text.told(reason)}"))
