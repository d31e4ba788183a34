"""Sides against each other, block by block: two dots and a line between them, then the ratio with its interval."""

from shardtools.bench.report.html._numbers import interval, rate, times, top_of_axis
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._stages import Json
from shardtools.bench.report.html._text import cut
from shardtools.bench.report.html._words import Say

_HIGH = 150.0
_LEFT = 46.0
_LOOKS = ("f-page l-two w2", "f-one l-one w2")
_BAND = (0.97, 1.03)
"""Within it two sides are called equal."""


def pairs(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """None where nothing was compared."""
    if not data["comparisons"]:
        return None
    sheet = Sheet(name, wide, 0, say("pairs.label"))
    top = 0.0
    for compared in data["comparisons"]:
        top = _compared(sheet, data, say, (compared, top)) + 26
    sheet.height = top - 20
    return sheet


def _blocks(data: Json, compared: Json) -> list[tuple[float | None, float | None]]:
    """Throughput of both sides by block; None where a trial failed."""
    names = [side["name"] for side in data["sides"]]
    if compared["a"] not in names or compared["b"] not in names:
        return []
    found: dict[int, list[float | None]] = {}
    for trial in data["trials"]:
        for place, which in enumerate(("a", "b")):
            if trial["block"] is not None and trial["side"] == names.index(compared[which]):
                found.setdefault(trial["block"], [None, None])[place] = trial["found"].get("throughput")
    return [(rates[0], rates[1]) for _, rates in sorted(found.items())]


def _compared(sheet: Sheet, data: Json, say: Say, shown: tuple[Json, float]) -> float:
    compared, top = shown
    for look, which in zip(_LOOKS, ("a", "b"), strict=True):
        sheet.mark((7, top + 10), 0 if which == "a" else 1, look)
        sheet.text((20, top + 14), cut(say.side(compared[which]), 14.5, sheet.width - 24), "t12 b", title=compared[which])
        top += 19
    blocks = _blocks(data, compared)
    room = sheet.width if sheet.is_narrow else sheet.width * 0.56
    bottom = _dots(sheet, say, (blocks, compared.get("outliers") or []), (top + 16, room)) if blocks else top
    if sheet.is_narrow:
        return _ratio(sheet, say, compared, (0.0, bottom + 14, sheet.width))
    return max(bottom, _ratio(sheet, say, compared, (room + 40, top + 26, sheet.width - room - 40)))


def _dots(sheet: Sheet, say: Say, found: tuple[list[tuple[float | None, float | None]], list[int]], place: tuple[float, float]) -> float:
    (blocks, outliers), (top, room) = found, place
    highest = top_of_axis(max((value for pair in blocks for value in pair if value is not None), default=1.0))
    base = top + _HIGH
    sheet.text((0, top - 6), say("samples/s"), "t10 muted")
    for part in (0.0, 0.5, 1.0):
        y = base - part * _HIGH
        sheet.line((_LEFT, y), (room, y), "l-line w1")
        if part < 1:
            sheet.text((_LEFT - 6, y + 4), rate(highest * part) if part else "0", "t10 muted", "end")
        else:
            sheet.text((_LEFT - 6, y + 8), rate(highest), "t10 muted", "end")
    each = (room - _LEFT) / len(blocks)
    gap = min(9.0, each / 4)
    for block, pair in enumerate(blocks):
        middle = _LEFT + each * (block + 0.5)
        points = [(middle + (i * 2 - 1) * gap, base - value / highest * _HIGH) for i, value in enumerate(pair) if value is not None]
        if len(points) == 2:
            sheet.path(points, "l-muted w1")
        for i, value in enumerate(pair):
            at = (middle + (i * 2 - 1) * gap, base - (value or 0.0) / highest * _HIGH)
            if value is None:
                sheet.text((at[0], base - 4), "×", "t13 x-accent", "middle", say("failed"))
            else:
                sheet.mark(at, i, _LOOKS[i], f"{say('block')} {block + 1}: {rate(value)}")
        mark = "*" if block in outliers else ""
        sheet.text((middle, base + 16), f"{block + 1}{mark}", "t10 muted", "middle")
    sheet.text((room, base + 31), say("block axis") + (f"; * {say('outlier')}" if outliers else ""), "t10 muted", "end")
    return base + 36


def _ratio(sheet: Sheet, say: Say, compared: Json, place: tuple[float, float, float]) -> float:
    left, top, room = place
    ci, ratio = compared["ci"], compared["ratio"]
    low, high = min(0.8, ratio, *(ci or ())) * 0.95, max(1.25, ratio, *(ci or ())) * 1.05
    scale = (left + 4, room - 8, low, high)
    sheet.text((left, top + 16), times(ratio), "t20 b")
    words = f"95 % {interval(ci)}, " if ci else ""
    sheet.text((left + 70, top + 15), f"{words}p = {compared['p']:.3f}, n = {compared['n']}", "t12 muted")
    y = top + 52
    sheet.rect((_x(_BAND[0], scale), y - 16, _x(_BAND[1], scale) - _x(_BAND[0], scale), 32), "f-grey")
    sheet.line((_x(1.0, scale), y - 20), (_x(1.0, scale), y + 20), "l-muted w1")
    if ci:
        sheet.line((_x(ci[0], scale), y), (_x(ci[1], scale), y), "l-one w3")
        for end in ci:
            sheet.line((_x(end, scale), y - 6), (_x(end, scale), y + 6), "l-one w2")
    sheet.mark((_x(ratio, scale), y), 3, "f-one l-page w1", times(ratio))
    sheet.text((_x(1.0, scale), y + 35), "1.00×", "t11 muted", "middle")
    sheet.text((left, y + 54), say("ratio axis"), "t10 muted")
    return y + 58


def _x(value: float, scale: tuple[float, float, float, float]) -> float:
    left, room, low, high = scale
    return left + room * (value - low) / (high - low)
