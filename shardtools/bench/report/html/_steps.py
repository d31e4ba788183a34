"""The first measured steps, one by one: what repeats with period W, and what does not, can be seen."""

from shardtools.bench.report.html._numbers import milliseconds, top_of_axis
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._stages import Json, timeline
from shardtools.bench.report.html._text import cut, width
from shardtools.bench.report.html._words import Say

_HIGH = 84.0
_LEFT = 44.0
_PARTS = (("data_wait_ms", "hatch l-wait w1"), ("h2d_copy_ms", "f-two"), ("compute_ms", "f-three"))
_MOST = 120


def steps(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """None where no trial had timers."""
    found = [(side, trial) for side in range(len(data["sides"])) if (trial := timeline(data, side)) is not None and _wait(trial)]
    if not found:
        return None
    sheet = Sheet(name, wide, 0, say("steps.label"))
    highest = top_of_axis(max(sum(column) for _, trial in found for column in _columns(trial)))
    top = 0.0
    for side, trial in found:
        top = _strip(sheet, say, (say.side(data["sides"][side]["name"]), trial), (top, highest))
    sheet.height = _legend(sheet, say, top, any(trial["found"]["steps"]["compute_ms"] for _, trial in found))
    return sheet


def _wait(trial: Json) -> bool:
    return bool((trial["found"]["steps"]["data_wait_ms"] or {}).get("first"))


def _columns(trial: Json) -> list[list[float]]:
    """Milliseconds of each part of PARTS, a list a step."""
    parts = [(trial["found"]["steps"].get(metric) or {}).get("first") or [] for metric, _ in _PARTS]
    count = min(_MOST, len(parts[0]))
    return [[part[step] if step < len(part) else 0.0 for part in parts] for step in range(count)]


def _strip(sheet: Sheet, say: Say, shown: tuple[str, Json], scale: tuple[float, float]) -> float:
    (name, trial), (top, highest) = shown, scale
    wait, columns = trial["found"]["steps"]["data_wait_ms"], _columns(trial)
    facts = f"{say('wait p50')} {milliseconds(wait['p50'])} · p99 {milliseconds(wait['p99'])}"
    room = sheet.width if sheet.is_narrow else sheet.width - width(facts, 12) - 16
    sheet.text((0, top + 14), cut(name, 15.5, room), "t13 b", title=name)
    top += 18 if sheet.is_narrow else 0
    sheet.text((0 if sheet.is_narrow else sheet.width, top + 14), facts, "t12 muted", "start" if sheet.is_narrow else "end")
    top += 28
    base = top + _HIGH
    for part in (0.0, 0.5, 1.0):
        y = base - part * _HIGH
        sheet.line((_LEFT, y), (sheet.width, y), "l-line w1")
        sheet.text((_LEFT - 6, y + 4), f"{highest * part:g}", "t10 muted", "end")
    each = (sheet.width - _LEFT) / max(24, len(columns))
    for step, column in enumerate(columns):
        y = base
        for (metric, look), ms in zip(_PARTS, column, strict=True):
            high = ms / highest * _HIGH
            y -= high
            if high >= 0.3:
                box = (_LEFT + each * step + each * 0.08, y, each * 0.84, high)
                sheet.rect(box, look, f"{say('step')} {step + 1}: {say(metric)} {milliseconds(ms)}")
    _ticks(sheet, say, (each, len(columns), max(1, trial["spec"]["settings"]["num_workers"])), base)
    return base + 42


def _ticks(sheet: Sheet, say: Say, found: tuple[float, int, int], base: float) -> None:
    """A tick every W steps, a number where there is room."""
    each, count, period = found
    last = -100.0
    for step in range(0, count, period):
        x = _LEFT + each * step
        sheet.line((x, base), (x, base + 4), "l-muted w1")
        if x - last >= 48 and x < sheet.width - 20:
            sheet.text((x, base + 16), str(step + 1), "t10 muted")
            last = x
    sheet.text((sheet.width, base + 30), f"{say('steps.axis')} {period}", "t10 muted", "end")


def _legend(sheet: Sheet, say: Say, top: float, has_consumer: bool) -> float:
    left = 0.0
    for metric, look in _PARTS if has_consumer else _PARTS[:1]:
        room = width(say(metric), 11) + 40
        if left + room > sheet.width:
            left, top = 0.0, top + 17
        sheet.rect((left + 1, top + 1, 14, 10), look)
        sheet.text((left + 21, top + 10), say(metric), "t11 muted")
        left += room
    return top + 16
