"""Shared memory as it was foreseen and as it was found: the bar is the most that was used, the bracket what it may reach."""

from collections.abc import Iterator
from dataclasses import dataclass

from shardtools.bench.prediction import SAFE_SHARE
from shardtools.bench.report.html._cells import Json, cells
from shardtools.bench.report.html._numbers import size
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._text import cut, width, wrapped
from shardtools.bench.report.html._words import Say

_MOST_ROWS = 16


@dataclass(frozen=True)
class Use:
    """Of one setting or one side. None: not foreseen, or not measured. Bytes, but for ``fd``."""

    name: str
    predicted: Json
    measured: Json

    def foreseen(self, metric: str) -> float | None:
        return self.predicted.get({"shm": "shm_bytes", "fd": "fds", "pinned": "pinned_bound_bytes", "rss": "ram_bytes"}[metric])


def uses(data: Json) -> list[Use]:
    """Sides first, then the cells of a matrix."""
    return [*_of_sides(data), *_of_cells(data)]


def _of_sides(data: Json) -> Iterator[Use]:
    for side, facts in enumerate(data["sides"]):
        trials = [
            trial for trial in data["trials"] if trial["side"] == side and trial["status"] == "ok" and trial["found"].get("predicted")
        ]
        peaks = [trial["watched"].get("peaks") or {} for trial in trials]
        if trials:
            names = ("shm", "fd", "rss", "pinned")
            most = {name: max((peak[name] for peak in peaks if peak.get(name) is not None), default=None) for name in names}
            yield Use(facts["name"], trials[0]["found"]["predicted"], most)


def _of_cells(data: Json) -> Iterator[Use]:
    for cell in cells(data):
        if cell.get("predicted") and cell.get("num_workers") and cell["status"] != "skipped" and not cell.get("is_computed"):
            more = (", pinned" if cell["pin_memory"] else "") + ("" if cell["persistent_workers"] else ", not persistent")
            yield Use(f"W {cell['num_workers']}, P {cell['prefetch_factor']}{more}", cell["predicted"], cell.get("measured") or {})


def memory(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """None where nothing was foreseen."""
    found = [use for use in uses(data) if use.foreseen("shm")]
    if not found:
        return None
    shown = found[:_MOST_ROWS]
    sheet = Sheet(name, wide, 0, say("memory.label"))
    free = (data["environment"].get("shm") or {}).get("free_bytes")
    most = max(max(use.predicted.get("shm_bound_bytes") or 0, use.foreseen("shm") or 0, use.measured.get("shm") or 0) for use in shown)
    has_wall = free is not None and free <= 1.6 * most
    scale = max(most, free or 0) if has_wall else most
    sheet.text((wide, 12), say("memory.head"), "t11 muted", "end")
    top = 22.0 if not has_wall else 42.0
    for use in shown:
        if has_wall and free is not None:
            _wall(sheet, top, free / scale, "l-accent w2")
            _wall(sheet, top, SAFE_SHARE * free / scale, "l-accent w1 d2")
        top = _row(sheet, say, use, (top, float(scale)))
    if has_wall and free is not None:
        left, room = _place(sheet)
        words = f"{say('most safe').format(round(100 * SAFE_SHARE))} | {say('shm free')} {size(free)}"
        x = left + room * free / scale
        is_start = x < width(words, 11)
        sheet.text((left if is_start else x, 28), words, "t11 x-accent", "start" if is_start else "end")
    if len(found) > len(shown):
        sheet.text((0, top + 12), say("more rows").format(len(found) - len(shown)), "t11 muted")
        top += 18
    sheet.height = _legend(sheet, say, top + 6)
    return sheet


def _place(sheet: Sheet) -> tuple[float, float]:
    left = 0.0 if sheet.is_narrow else 172.0
    return left, sheet.width - left - (4.0 if sheet.is_narrow else 190.0)


def _wall(sheet: Sheet, top: float, part: float, look: str) -> None:
    """What /dev/shm has, or what of it is safe, beside one bar."""
    left, room = _place(sheet)
    top += 16 if sheet.is_narrow else 0
    sheet.line((left + room * part, top + 1), (left + room * part, top + 19), look)


def _row(sheet: Sheet, say: Say, use: Use, at: tuple[float, float]) -> float:
    top, scale = at
    left, room = _place(sheet)
    low, bound, measured = use.foreseen("shm") or 0, use.predicted.get("shm_bound_bytes"), use.measured.get("shm")
    words = f"{size(measured) if measured is not None else say('not measured')} / {size(low)}"
    if sheet.is_narrow:
        sheet.text((0, top + 12), cut(say.side(use.name), 12, sheet.width * 0.5), "t12", title=use.name)
        sheet.text((sheet.width, top + 12), words, "t12", "end")
        top += 18
    else:
        sheet.text((0, top + 14), cut(say.side(use.name), 12, left - 12), "t12", title=use.name)
        sheet.text((sheet.width, top + 14), words, "t12", "end")
    sheet.rect((left, top + 4, room * (measured or 0) / scale, 12), "f-one", f"{say('memory.measured')}: {size(measured)}")
    x = left + room * low / scale
    if bound:
        end = left + room * bound / scale
        sheet.rect((x, top + 4, end - x, 12), "f-none l-muted w2", f"{say('memory.bound')}: {size(bound)}")
    sheet.line((x, top), (x, top + 20), "l-ink w2")
    return top + 28


def _legend(sheet: Sheet, say: Say, top: float) -> float:
    bound = say("memory.bound").format(round(100 * SAFE_SHARE))
    kinds = (("f-one", say("memory.measured")), ("", say("memory.predicted")), ("f-none l-muted w2", bound))
    left = 0.0
    for look, words in kinds:
        needed = width(words, 11) + 40
        if left and left + needed > sheet.width:
            left, top = 0.0, top + 17
        if look:
            sheet.rect((left + 1, top + 2, 14, 10), look)
        else:
            sheet.line((left + 8, top), (left + 8, top + 14), "l-ink w2")
        for number, line in enumerate(wrapped(words, 11, sheet.width - 22)):
            top += 15 if number else 0
            sheet.text((left + 22, top + 11), line, "t11 muted")
        left += needed
    return top + 18
