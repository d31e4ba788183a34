"""The way of a batch from the disk to the device: what each stage costs, where it waits, which one limits."""

from collections.abc import Iterable

from shardtools.bench.report.html._numbers import NONE, milliseconds, percent, rate
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._stages import IN_WORKERS, STAGES, Cost, Json, Limit, costs, limit, of_step, timeline, without_rate
from shardtools.bench.report.html._text import cut, width, wrapped
from shardtools.bench.report.html._words import Say

_GAP = 13.0
_BOX_HEIGHT = 96.0
_ROW_HEIGHT = 44.0
_LOW_ROW_HEIGHT = 30.0
_LOOK_OF_PART = {"wait": "hatch l-wait w1", "h2d": "f-two", "compute": "f-three", "rest": "f-panel l-line w1"}


def pipeline(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """One row of boxes a side; from top to bottom where it is narrow. None where no trial had timers."""
    if not any(timeline(data, side) for side in range(len(data["sides"]))):
        return None
    sheet = Sheet(name, wide, 0, say("pipeline.label"))
    top = 4.0
    for side in range(len(data["sides"])):
        top = _side(sheet, data, say, (side, top))
    sheet.height = _legend(sheet, say, top)
    return sheet


def _side(sheet: Sheet, data: Json, say: Say, place: tuple[int, float]) -> float:
    """Returns where the next may begin."""
    side, top = place
    facts = data["sides"][side]
    trial = timeline(data, side)
    speed = without_rate(facts, say) if trial is None else say("with timers").format(rate(trial["found"]["throughput"]))
    room = sheet.width if sheet.is_narrow else sheet.width - width(speed, 13) - 16
    sheet.text((0, top + 14), cut(say.side(facts["name"]), 15.5, room), "t13 b", title=facts["name"])
    top += 18 if sheet.is_narrow else 0
    sheet.text((0 if sheet.is_narrow else sheet.width, top + 14), speed, "t13", "start" if sheet.is_narrow else "end")
    found, limited = costs(data, side), limit(data, side)
    if all(cost.ms is None for cost in found):
        return _reasons(sheet, say, found, top + 18) + 22
    top = (_rows if sheet.is_narrow else _boxes)(sheet, say, (found, limited), top + 24)
    top = _loop(sheet, data, say, (side, top + 14))
    return _reasons(sheet, say, found, top) + 22


def _boxes(sheet: Sheet, say: Say, found: tuple[list[Cost], Limit], top: float) -> float:
    boxes, limited = found
    wide = (sheet.width - _GAP * (len(boxes) - 1)) / len(boxes)
    split = len(IN_WORKERS) * (wide + _GAP) - _GAP
    for left, right, words in ((0.0, split, say("in workers")), (split + _GAP, sheet.width, say("in main"))):
        sheet.line((left, top + 16), (right, top + 16), "l-line w1")
        sheet.text((left, top + 11), words, "t11 muted")
    top += 38
    for i, cost in enumerate(boxes):
        left = i * (wide + _GAP)
        if i:
            middle = top + _BOX_HEIGHT / 2
            sheet.path([(left - _GAP + 3, middle), (left - 4, middle)], "l-muted w1")
            sheet.path([(left - 7, middle - 3), (left - 3, middle), (left - 7, middle + 3)], "l-muted w1")
        _box(sheet, say, (cost, limited), (left, top, wide, _BOX_HEIGHT))
    return top + _BOX_HEIGHT


def _box(sheet: Sheet, say: Say, found: tuple[Cost, Limit], box: tuple[float, float, float, float]) -> None:
    (cost, limited), (left, top, wide, high) = found, box
    is_limit = cost.stage == limited.stage
    sheet.rect(box, _frame(cost, is_limit, limited), cost.reason, corner=6)
    if is_limit:
        words = say(limited.word)
        sheet.text(
            (left + wide / 2, top - 6), cut(words, 11, wide + 2 * _GAP), "t11 x-accent" if limited.is_verdict else "t11 muted", "middle"
        )
    lines = list(wrapped(say(f"stage.{cost.stage}"), 12, wide - 16))[:2]
    look = "t12 muted" if cost.ms is None else "t12"
    for i, line in enumerate(lines):
        sheet.text((left + 9, top + 19 + 14 * i), line, look)
    if cost.ms is None:
        sheet.text((left + 9, top + 64), NONE, "t16 muted", title=cost.reason)
        return
    sheet.text((left + 9, top + 60), milliseconds(cost.ms), "t16 b")
    sheet.text((left + 9, top + 76), percent(cost.share), "t11 muted")
    _bar(sheet, cost, (left + 9, top + high - 13, wide - 18, 7))


def _frame(cost: Cost, is_limit: bool, limited: Limit) -> str:
    if is_limit:
        return "f-panel l-accent w3" if limited.is_verdict else "f-panel l-muted w2 d1"
    return "f-grey l-line w1 d2" if cost.ms is None else "f-panel l-line w1"


def _bar(sheet: Sheet, cost: Cost, box: tuple[float, float, float, float]) -> None:
    left, top, wide, high = box
    sheet.rect(box, "f-grey")
    sheet.rect((left, top, wide * min(1.0, cost.busy), high), "f-one")
    if cost.waiting > 0.005:
        sheet.rect((left + wide * cost.busy, top, wide * cost.waiting, high), "hatch l-wait w1")


def _rows(sheet: Sheet, say: Say, found: tuple[list[Cost], Limit], top: float) -> float:
    boxes, limited = found
    for cost in boxes:
        if cost.stage in (STAGES[0], "transfer"):
            sheet.text((0, top + 14), say("in workers, short" if cost.stage == STAGES[0] else "in main"), "t11 muted")
            top += 22
        is_limit = cost.stage == limited.stage
        high = _LOW_ROW_HEIGHT if cost.ms is None and not is_limit else _ROW_HEIGHT
        sheet.rect((2, top, sheet.width - 4, high), _frame(cost, is_limit, limited), cost.reason, corner=6)
        _row(sheet, say, cost, top)
        if is_limit:
            sheet.text((12, top + 35), say(limited.word), "t11 x-accent" if limited.is_verdict else "t11 muted")
        top += high + 6
    return top - 6


def _row(sheet: Sheet, say: Say, cost: Cost, top: float) -> None:
    right = sheet.width - 12
    sheet.text((12, top + 19), say(f"stage.{cost.stage}"), "t13 muted" if cost.ms is None else "t13")
    if cost.ms is None:
        sheet.text((right, top + 19), NONE, "t13 muted", "end", cost.reason)
        return
    sheet.text((right, top + 19), milliseconds(cost.ms), "t13 b", "end")
    sheet.text((right, top + 36), percent(cost.share), "t11 muted", "end")
    _bar(sheet, cost, (sheet.width * 0.44, top + 28, sheet.width * 0.4, 8))


def _loop(sheet: Sheet, data: Json, say: Say, place: tuple[int, float]) -> float:
    """The step of the main loop as one bar."""
    side, top = place
    trial, parts = timeline(data, side), of_step(data, side)
    if trial is None or not parts:
        return top
    sheet.text((0, top + 12), f"{say('main loop')} {milliseconds(trial['found']['step_ms'])}", "t12")
    left, top = 0.0, top + 19
    for name, share in parts:
        wide = share * sheet.width
        sheet.rect((left, top, wide, 22), _LOOK_OF_PART[name], f"{say('part.' + name)} {percent(share)}")
        words = f"{say('part.' + name)} {percent(share)}"
        if name in ("wait", "rest") and width(words, 12) + 16 < wide:
            sheet.rect((left + 4, top + 3, width(words, 12) + 8, 16), "f-page")
            sheet.text((left + 8, top + 15), words, "t12")
        left += wide
    small = [f"{say('part.' + name)} {percent(share)}" for name, share in parts if name not in ("wait", "rest") and share > 0]
    if small:
        sheet.text((sheet.width, top + 37), " · ".join(small), "t11 muted", "end")
    return top + (40 if small else 24)


def _reasons(sheet: Sheet, say: Say, found: Iterable[Cost], top: float) -> float:
    """Why boxes are grey, reasons that are the same once."""
    stages_of: dict[str, list[str]] = {}
    for cost in found:
        if cost.ms is None:
            stages_of.setdefault(cost.reason, []).append(say(f"stage.{cost.stage}"))
    for reason, stages in stages_of.items():
        which = "" if len(stages) == len(STAGES) else f"{', '.join(stages)}: "
        for line in wrapped(which + say.reason(reason), 11, sheet.width):
            top += 15
            sheet.text((0, top), line, "t11 muted")
    return top


def _legend(sheet: Sheet, say: Say, top: float) -> float:
    left = 0.0
    for look, words in (("f-one", "legend.busy"), ("hatch l-wait w1", "legend.waiting"), ("f-grey l-line w1 d2", "legend.none")):
        room = width(say(words), 11) + 40
        if left + room - 20 > sheet.width:
            left, top = 0.0, top + 18
        sheet.rect((left + 1, top + 1, 14, 10), look)
        sheet.text((left + 21, top + 10), say(words), "t11 muted")
        left += room
    return top + 18
