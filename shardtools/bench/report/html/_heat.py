"""Workers against prefetch factor, one grid for each pinning and persistence: a number in every cell that was measured, a reason in
every one that was not run, and nothing where nothing was tried."""

from dataclasses import dataclass

from shardtools.bench.report.edge import still_rising
from shardtools.bench.report.html._cells import Hold, Json, cells, chosen, hold, holds, without_workers
from shardtools.bench.report.html._numbers import percent, rate
from shardtools.bench.report.html._sheet import Box, Sheet
from shardtools.bench.report.html._text import cut, width, wrapped
from shardtools.bench.report.html._words import Say

_HIGH = 42.0
_LEFT = 58.0


def heat(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """None where no settings were measured."""
    found = holds(data)
    if not found:
        return None
    sheet = Sheet(name, wide, 0, say("heat.label"))
    reasons: list[str] = []
    across = 1 if sheet.is_narrow or len(found) == 1 else 2
    room = (wide - 28.0 * (across - 1)) / across
    top = bottom = 0.0
    for i, one in enumerate(found):
        if i and i % across == 0:
            top = bottom + 18
        bottom = max(bottom, _grid(sheet, data, say, (one, (room + 28) * (i % across), top, room), reasons))
    matrix = data["matrix"]
    trials = say("heat.trials").format(matrix["num_trials"], matrix["full_grid_trials"], say.reason(matrix["stopped"]))
    sheet.height = _footnotes(sheet, [*(f"{i}) {reason}" for i, reason in enumerate(reasons, 1)), say("heat.note"), trials], bottom + 8) + 6
    return sheet


@dataclass(frozen=True)
class _Grid:
    """One pinning and persistence, and where it lies."""

    mine: list[Json]
    without_workers: Json | None
    left: float
    top: float
    room: float

    @property
    def workers(self) -> list[int]:
        return ([0] if self.without_workers is not None else []) + sorted(
            {cell["num_workers"] for cell in self.mine if cell["num_workers"]}
        )

    @property
    def factors(self) -> list[int]:
        return sorted({cell["prefetch_factor"] or 0 for cell in self.mine if cell["num_workers"]}) or [0]

    def box(self, row: int, column: int, across: int = 1) -> Box:
        wide = min(150.0, (self.room - _LEFT) / len(self.factors))
        return self.left + _LEFT + wide * column + 1.5, self.top + 38 + row * _HIGH + 1.5, wide * across - 3, _HIGH - 3

    def cell(self, num_workers: int, factor: int) -> Json | None:
        both = ((cell["num_workers"], cell["prefetch_factor"] or 0) for cell in self.mine)
        return next((cell for cell, at in zip(self.mine, both, strict=True) if at == (num_workers, factor)), None)


def _grid(sheet: Sheet, data: Json, say: Say, place: tuple[Hold, float, float, float], reasons: list[str]) -> float:
    (one, left, top, room) = place
    is_first = next(other for other in holds(data) if other[0] == one[0]) == one
    none = without_workers(data, one[0]) if is_first else None
    grid = _Grid([cell for cell in cells(data) if hold(cell) == one and cell["num_workers"]], none, left, top, room)
    sheet.text((left, top + 13), f"pin_memory={one[0]}, persistent_workers={one[1]}", "t11 b")
    for column, factor in enumerate(grid.factors):
        x, _, wide, _ = grid.box(0, column)
        sheet.text((x + wide / 2, top + 32), f"P = {factor}" if factor else "–", "t11 muted", "middle")
    for row, num_workers in enumerate(grid.workers):
        sheet.text((left + _LEFT - 8, grid.box(row, 0)[1] + 24), f"W = {num_workers}", "t11 muted", "end")
        if not num_workers and none is not None:
            _cell(sheet, data, say, (none, grid.box(row, 0, len(grid.factors))), reasons)
            continue
        for column, factor in enumerate(grid.factors):
            cell = grid.cell(num_workers, factor)
            if cell is None or cell["status"] == "skipped":
                message = say.reason(cell["message"]) if cell else ""
                sheet.rect(grid.box(row, column), "f-none l-line w1 d2", message or say("not tried"), corner=3)
            else:
                _cell(sheet, data, say, (cell, grid.box(row, column)), reasons)
    return grid.box(len(grid.workers), 0)[1]


def _cell(sheet: Sheet, data: Json, say: Say, found: tuple[Json, Box], reasons: list[str]) -> None:
    cell, (left, top, wide, high) = found
    middle = left + wide / 2
    if cell["throughput"] is None:
        _refused(sheet, say, (cell, (left, top, wide, high)), reasons)
        return
    best = max(one["throughput"] for one in cells(data) if one["throughput"] is not None)
    part = cell["throughput"] / best if best else 0.0
    sheet.rect((left, top, wide, high), "f-page", corner=3)
    sheet.rect((left, top, wide, high), "f-one", _title(cell), 0.05 + 0.4 * part**2, corner=3)
    words = "computed" if cell.get("is_computed") else next((what for what in ("knee", "best") if chosen(data, what) is cell), "")
    if words in ("knee", "best"):
        sheet.rect((left + 1, top + 1, wide - 2, high - 2), "f-none l-accent w3" if words == "knee" else "f-none l-ink w2", corner=3)
    sheet.text((middle, top + 18), rate(cell["throughput"]), "t13 b", "middle")
    told = "best tried" if words == "knee" and still_rising(data["matrix"]) else words
    marked = f"{say(told)} · {percent(part)}" if told else percent(part)
    sheet.text((middle, top + 32), say(told) if told and width(marked, 10) > wide else marked, "t10", "middle")


def _refused(sheet: Sheet, say: Say, found: tuple[Json, Box], reasons: list[str]) -> None:
    cell, (left, top, wide, high) = found
    message = say.reason(cell.get("message") or "")
    sheet.rect((left, top, wide, high), "hatch l-wait w1", message, corner=3)
    if message and message not in reasons:
        reasons.append(message)
    number = f" {reasons.index(message) + 1})" if message else ""
    words = cut(say(f"status.{cell['status']}") + number, 11, wide - 8)
    sheet.rect((left + 4, top + high / 2 - 9, wide - 8, 18), "f-page", corner=2)
    sheet.text((left + wide / 2, top + high / 2 + 4), words, "t11", "middle", message)


def _title(cell: Json) -> str:
    interval = f" ({rate(cell['ci'][0])}–{rate(cell['ci'][1])})" if cell["ci"] else ""
    return f"W = {cell['num_workers'] or 0}, P = {cell['prefetch_factor']}: {rate(cell['throughput'])}{interval}"


def _footnotes(sheet: Sheet, lines: list[str], top: float) -> float:
    for text in lines:
        for line in wrapped(text, 11, sheet.width):
            top += 15
            sheet.text((0, top), line, "t11 muted")
        top += 2
    return top
