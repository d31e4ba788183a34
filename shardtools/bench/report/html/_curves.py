"""Throughput against workers, a line for each prefetch factor: with intervals, the knee, the rate the GPU takes and the number of cores."""

from dataclasses import dataclass
from itertools import pairwise

from shardtools.bench.report.edge import still_rising
from shardtools.bench.report.html._cells import Json, chosen, curves, gpu_rate
from shardtools.bench.report.html._numbers import rate, top_of_axis
from shardtools.bench.report.html._sheet import Sheet
from shardtools.bench.report.html._text import width
from shardtools.bench.report.html._words import Say

_COLOURS = ("one", "two", "three", "four")


@dataclass(frozen=True)
class _Plane:
    """Where a number of workers and a rate lie. Workers stand evenly, since they double."""

    workers: list[int]
    top_rate: float
    box: tuple[float, float, float, float]

    def x(self, num_workers: float) -> float:
        left, _, wide, _ = self.box
        inner = wide - 40
        last = len(self.workers) - 1
        if not last:
            return left + wide / 2
        for i, (low, high) in enumerate(zip(self.workers, self.workers[1:], strict=False)):
            if num_workers <= high:
                return left + 20 + inner * (i + max(0.0, (num_workers - low) / (high - low))) / last
        return left + 20 + inner

    def are_neighbours(self, low: int, high: int) -> bool:
        """Nothing is drawn over a number of workers that other lines have and this one has not."""
        return self.workers.index(high) == self.workers.index(low) + 1

    def y(self, value: float) -> float:
        _, top, _, high = self.box
        return top + high * (1 - min(value, self.top_rate) / self.top_rate)


def throughput(data: Json, say: Say, name: str, wide: float) -> Sheet | None:
    """None where no settings were measured."""
    found = curves(data)
    if not found:
        return None
    plane = _plane(data, found, wide)
    left, top, inner, high = plane.box
    sheet = Sheet(name, wide, top + high + 66, say("throughput.label"))
    _axes(sheet, plane, say)
    _limits(sheet, plane, data, say)
    for i, (prefetch, curve) in enumerate(found.items()):
        _curve(sheet, plane, curve, (i, _shift(i, found)))
        x = left + i * (inner / max(3, len(found)))
        _key(sheet, (x, top + high + 54), i, f"P = {prefetch}" if prefetch else "W = 0")
    _knee(sheet, plane, (data, found), say)
    return sheet


def _shift(i: int, found: dict[int, list[Json]]) -> float:
    """Lines stand a little beside each other, so that marks of one rate are all seen."""
    return 5.0 * (i - (len(found) - 1) / 2)


def _plane(data: Json, found: dict[int, list[Json]], wide: float) -> _Plane:
    every = [cell for curve in found.values() for cell in curve]
    most = max(cell["ci"][1] if cell["ci"] else cell["throughput"] for cell in every)
    gpu = gpu_rate(data)
    highest = max(most, gpu) if gpu is not None and gpu <= 2.5 * most else most
    workers = sorted({cell["num_workers"] or 0 for cell in every})
    return _Plane(workers, top_of_axis(highest * 1.04), (52.0, 34.0, wide - 60.0, 230.0))


def _axes(sheet: Sheet, plane: _Plane, say: Say) -> None:
    left, top, wide, high = plane.box
    sheet.text((0, 12), say("samples/s"), "t11 muted")
    for part in range(5):
        value = plane.top_rate * part / 4
        sheet.line((left, plane.y(value)), (left + wide, plane.y(value)), "l-line w1")
        sheet.text((left - 8, plane.y(value) + 4), rate(value) if value else "0", "t11 muted", "end")
    for num_workers in plane.workers:
        sheet.text((plane.x(num_workers), top + high + 17), str(num_workers), "t11", "middle")
    sheet.text((left + wide / 2, top + high + 34), "num_workers (W)", "t11 muted", "middle")


def _limits(sheet: Sheet, plane: _Plane, data: Json, say: Say) -> None:
    left, top, wide, high = plane.box
    gpu, cores = gpu_rate(data), data["environment"].get("cpus_effective")
    if gpu is not None and gpu <= plane.top_rate:
        sheet.line((left, plane.y(gpu)), (left + wide, plane.y(gpu)), "l-ink w2 d3")
        sheet.text((left + 4, plane.y(gpu) - 5), f"G: {say('gpu takes')} {rate(gpu)}", "t11 b")
    elif gpu is not None:
        sheet.text((left + 4, top - 6), f"↑ G: {say('gpu takes')} {rate(gpu)}", "t11 b")
    if cores is not None and plane.workers[0] <= cores <= plane.workers[-1]:
        x, words = plane.x(cores), f"{cores:g} {say('cores')}"
        sheet.line((x, top), (x, top + high), "l-muted w1 d2")
        is_left = x + 5 + width(words, 11) > left + wide
        sheet.text((x + (-5 if is_left else 5), top + high - 7), words, "t11 muted", "end" if is_left else "start")


def _curve(sheet: Sheet, plane: _Plane, curve: list[Json], place: tuple[int, float]) -> None:
    i, shift = place
    colour = _COLOURS[i % 4]
    points = [(plane.x(cell["num_workers"] or 0) + shift, plane.y(cell["throughput"])) for cell in curve]
    for (one, start), (other, end) in pairwise(zip(curve, points, strict=True)):
        if plane.are_neighbours(one["num_workers"] or 0, other["num_workers"] or 0):
            sheet.path([start, end], f"l-{colour} w2" + ("", " d1", " d2", " d3")[i % 4])
    for (x, y), cell in zip(points, curve, strict=True):
        if i and not cell["num_workers"]:
            continue  # read nothing ahead: the first line has it
        if cell["ci"]:
            low, high = (plane.y(value) for value in cell["ci"])
            sheet.line((x, low), (x, high), f"l-{colour} w1")
            for tip in (low, high):
                sheet.line((x - 3, tip), (x + 3, tip), f"l-{colour} w1")
        title = f"W = {cell['num_workers'] or 0}, P = {cell['prefetch_factor']}: {rate(cell['throughput'])}"
        sheet.mark((x, y), i, f"f-{colour} l-page w1", title)


def _key(sheet: Sheet, at: tuple[float, float], i: int, words: str) -> None:
    x, y = at
    sheet.line((x, y - 4), (x + 26, y - 4), f"l-{_COLOURS[i % 4]} w2" + ("", " d1", " d2", " d3")[i % 4])
    sheet.mark((x + 13, y - 4), i, f"f-{_COLOURS[i % 4]} l-page w1")
    sheet.text((x + 33, y), words, "t12")


def _knee(sheet: Sheet, plane: _Plane, shown: tuple[Json, dict[int, list[Json]]], say: Say) -> None:
    data, found = shown
    knee = chosen(data, "knee")
    if knee is None or knee["throughput"] is None:
        return
    left, top, wide, _ = plane.box
    line = next((i for i, curve in enumerate(found.values()) if any(cell is knee for cell in curve)), 0)
    x, y = plane.x(knee["num_workers"] or 0) + _shift(line, found), plane.y(knee["throughput"])
    is_rising = still_rising(data["matrix"])
    words = f"{say('still rising' if is_rising else 'knee')}: W = {knee['num_workers'] or 0}, {rate(knee['throughput'])}"
    room = width(words, 12)
    at = min(max(x, left + room / 2 + 4), left + wide - room / 2 - 4)
    below = y + 46 if y + 60 < top + plane.box[3] else y - 40
    sheet.path([(x, y), (x, below - (11 if below > y else -5))], "l-accent w1")
    sheet.rect((at - room / 2 - 4, below - 12, room + 8, 17), "f-page", opacity=0.9)
    sheet.text((at, below + 1), words, "t12 x-accent", "middle")
    sheet.rect((x - 11, y - 11, 22, 22), "f-none l-accent w2", corner=11)
