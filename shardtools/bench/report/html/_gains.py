"""What the loader gained when one stage was taken away: how a bottleneck is told from a stage that is only busy."""

from dataclasses import dataclass

from shardtools.bench.attribution import MIN_RATIO, may_be_sure
from shardtools.bench.report.html._numbers import interval, times
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._stages import Json, verdict_of
from shardtools.bench.report.html._text import cut, wrapped
from shardtools.bench.report.html._words import Say

_ROW = 30.0
_TELLS = 10.0
"""Times the gain: an interval that reaches further tells nothing, and is not written out."""
_ROOM_RIGHT = 172.0
_WIDEST = 1.6
"""Times the largest gain: an interval that reaches further would make all else too small to see."""


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
        verdict = verdict_of(data, side)
        is_open = verdict is not None and verdict["class"] == "inconclusive"
        is_noisy = data["noise"]["is_noisy"]
        rows = [(one, not is_open and may_be_sure(one["n"], is_noisy) and one["ci"] is not None and one["ci"][0] > 1.0) for one in mine]
        top = _side(sheet, say, (say.side(data["sides"][side]["name"]), rows, None if verdict is None else verdict["stage"]), top)
    for line in (line for words in ("sure", "whisker") for line in wrapped(say(words), 11, sheet.width)):
        sheet.text((0, top), line, "t11 muted")
        top += 14
    sheet.height = top - 6
    return sheet


def _side(sheet: Sheet, say: Say, shown: tuple[str, list[tuple[Json, bool]], str | None], top: float) -> float:
    """Each row with whether its gain is sure."""
    name, rows, limited = shown
    sheet.text((0, top + 14), cut(name, 15.5, sheet.width), "t13 b", title=name)
    top += 26
    # Narrow: words stand above their bar, for both need the whole width.
    left, room = (8.0, sheet.width - 16) if sheet.is_narrow else (150.0, sheet.width - 150 - _ROOM_RIGHT)
    most = max(1.5, *(one["ratio"] for one, _ in rows))
    every = [min(value, _WIDEST * most) for one, _ in rows for value in (one["ratio"], *(one["ci"] or ()))]
    plane = _Plane(left, room, min(0.9, *every), max(1.5, *every) * 1.03, 46.0 if sheet.is_narrow else _ROW)
    bottom = top + plane.row * len(rows)
    sheet.line((plane.x(1.0), top), (plane.x(1.0), bottom), "l-muted w1")
    sheet.line((plane.x(MIN_RATIO), top), (plane.x(MIN_RATIO), bottom), "l-muted w1 d2")
    for one, is_sure in sorted(rows, key=lambda row: -row[0]["ratio"]):
        _stage(sheet, say, (one, one["stage"] == limited, is_sure), (plane, top))
        top += plane.row
    sheet.text((plane.x(1.0), bottom + 14), "1×", "t10 muted", "middle")
    sheet.text((plane.x(MIN_RATIO) + 3, bottom + 14), f"{MIN_RATIO}×", "t10 muted")
    return bottom + 36


def _stage(sheet: Sheet, say: Say, shown: tuple[Json, bool, bool], place: tuple[_Plane, float]) -> None:
    (one, is_limit, is_sure), (plane, top) = shown, place
    y = top + plane.row - 15
    words = top + 14 if sheet.is_narrow else y + 4
    number = times(one["ratio"]) + (f" ({_interval(one, say)})" if one["ci"] else "")
    if sheet.is_narrow:
        sheet.rect((0, top + 3, sheet.width, 15), "f-page")
    sheet.text((0, words), cut(say(f"stage.{one['stage']}"), 12, 140), "t12 x-accent" if is_limit else "t12")
    sheet.text((sheet.width, words), number, "t12 b" if is_limit else "t12", "end")
    look, start, end = "f-accent" if is_limit else "f-one", plane.x(min(1.0, one["ratio"])), plane.x(max(1.0, one["ratio"]))
    if is_sure:
        sheet.rect((start, y - 4, end - start, 8), look, opacity=0.35)
    else:
        sheet.rect((start, y - 4, end - start, 8), "f-none l-muted w1 d2")
    if one["ci"]:
        sheet.line((plane.x(one["ci"][0]), y), (plane.x(min(one["ci"][1], plane.most)), y), "l-ink w2")
    mark = f"{look} l-page w1" if is_sure else "f-page l-muted w1"
    sheet.mark((plane.x(one["ratio"]), y), 3 if is_limit else 0, mark, times(one["ratio"]))


def _interval(one: Json, say: Say) -> str:
    return interval(one["ci"]) if one["ci"][1] <= _TELLS * one["ratio"] else say("too wide")
