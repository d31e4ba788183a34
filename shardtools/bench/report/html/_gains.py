"""What the loader gained when one stage was taken away: how a bottleneck is told from a stage that is only busy."""

from dataclasses import dataclass

from shardtools.bench.report.html._numbers import interval, times
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._stages import Json, limit
from shardtools.bench.report.html._text import cut
from shardtools.bench.report.html._words import Say

_ROW = 30.0
_ENOUGH = 1.15
"""A stage that gives less is not called a bottleneck."""


@dataclass(frozen=True)
class _Plane:
    left: float
    room: float
    least: float
    most: float
    row: float

    def x(self, ratio: float) -> float:
        return self.left + self.room * (ratio - self.least) / (self.most - self.least)


def gains(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """None where nothing was taken away."""
    sides = [side for side in range(len(data["sides"])) if any(one.get("side", 0) == side for one in data["ablation"])]
    if not sides:
        return None
    sheet = Sheet(name, wide, 0, say("gains.label"))
    top = 0.0
    for side in sides:
        mine = [one for one in data["ablation"] if one.get("side", 0) == side]
        top = _side(sheet, say, (say.side(data["sides"][side]["name"]), mine, limit(data, side).stage), top)
    sheet.height = top - 8
    return sheet


def _side(sheet: Sheet, say: Say, shown: tuple[str, list[Json], str | None], top: float) -> float:
    name, rows, limited = shown
    sheet.text((0, top + 14), cut(name, 15.5, sheet.width), "t13 b", title=name)
    top += 26
    # Narrow: words stand above their bar, for both need the whole width.
    left, room = (8.0, sheet.width - 16) if sheet.is_narrow else (150.0, sheet.width - 300)
    every = [value for one in rows for value in (one["ratio"], *(one["ci"] or ()))]
    plane = _Plane(left, room, min(0.9, *every), max(1.5, *every) * 1.03, 46.0 if sheet.is_narrow else _ROW)
    bottom = top + plane.row * len(rows)
    sheet.line((plane.x(1.0), top), (plane.x(1.0), bottom), "l-muted w1")
    sheet.line((plane.x(_ENOUGH), top), (plane.x(_ENOUGH), bottom), "l-muted w1 d2")
    for one in sorted(rows, key=lambda one: -one["ratio"]):
        _stage(sheet, say, (one, one["stage"] == limited), (plane, top))
        top += plane.row
    sheet.text((plane.x(1.0), bottom + 14), "1×", "t10 muted", "middle")
    sheet.text((plane.x(_ENOUGH) + 3, bottom + 14), f"{_ENOUGH}×", "t10 muted")
    return bottom + 36


def _stage(sheet: Sheet, say: Say, shown: tuple[Json, bool], place: tuple[_Plane, float]) -> None:
    (one, is_limit), (plane, top) = shown, place
    y = top + plane.row - 15
    words = top + 14 if sheet.is_narrow else y + 4
    number = times(one["ratio"]) + (f" ({interval(one['ci'])})" if one["ci"] else "")
    if sheet.is_narrow:
        sheet.rect((0, top + 3, sheet.width, 15), "f-page")
    sheet.text((0, words), cut(say(f"stage.{one['stage']}"), 12, 140), "t12 x-accent" if is_limit else "t12")
    sheet.text((sheet.width, words), number, "t12 b" if is_limit else "t12", "end")
    look, start, end = "f-accent" if is_limit else "f-one", plane.x(min(1.0, one["ratio"])), plane.x(max(1.0, one["ratio"]))
    sheet.rect((start, y - 4, end - start, 8), look, opacity=0.35)
    if one["ci"]:
        sheet.line((plane.x(one["ci"][0]), y), (plane.x(one["ci"][1]), y), "l-ink w2")
    sheet.mark((plane.x(one["ratio"]), y), 3 if is_limit else 0, f"{look} l-page w1", times(one["ratio"]))
