"""A drawing that is written piece by piece: SVG whose looks are classes of ``figures.css``; page and picture differ in colours alone."""

import re
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files

from shardtools.bench.report.html._text import clean

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, width, height."""

LIGHT = {
    "ink": "#1d2329", "muted": "#59636e", "line": "#d3d8de", "panel": "#f4f6f8", "page": "#ffffff", "grey": "#e4e7eb",
    "one": "#0072b2", "two": "#b8560b", "three": "#00795a", "four": "#9c4f80", "accent": "#c24a00", "wait": "#8a949e",
}  # fmt: skip
"""After Okabe and Ito, darker where text has to be read on white."""


@cache
def looks() -> str:
    """The stylesheet of all drawings, its colours named."""
    return files("shardtools.bench.report.html").joinpath("figures.css").read_text("utf-8")


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


@dataclass
class Sheet:
    """``name`` is unique in a page: patterns are found by it."""

    name: str
    width: float
    height: float
    label: str
    """What the drawing shows, for who cannot see it."""
    parts: list[str] = field(default_factory=list)

    @property
    def is_narrow(self) -> bool:
        return self.width < 600

    def rect(self, box: Box, look: str, title: str = "", opacity: float | None = None, corner: float = 0) -> None:
        left, top, width, height = (_number(max(value, 0)) if i > 1 else _number(value) for i, value in enumerate(box))
        faint = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
        round_ = f' rx="{_number(corner)}"' if corner else ""
        place = f'x="{left}" y="{top}" width="{width}" height="{height}"'
        self.parts.append(f'<rect class="{look}" {place}{round_}{faint}{self._hatch(look)}>{_title(title)}</rect>')

    def line(self, start: Point, end: Point, look: str) -> None:
        (x1, y1), (x2, y2) = start, end
        place = f'x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" y2="{_number(y2)}"'
        self.parts.append(f'<line class="{look}" {place}/>')

    def path(self, points: list[Point], look: str, is_closed: bool = False) -> None:
        steps = " ".join(f"{'M' if i == 0 else 'L'}{_number(x)} {_number(y)}" for i, (x, y) in enumerate(points))
        self.parts.append(f'<path class="{look}" d="{steps}{" Z" if is_closed else ""}"/>')

    def mark(self, at: Point, shape: int, look: str, title: str = "") -> None:
        """Circle, square, triangle, diamond: series are told apart without colour."""
        (x, y), r = at, 5.0
        corners = {
            1: [(-r, -r), (r, -r), (r, r), (-r, r)],
            2: [(0, -r - 1), (r + 1, r), (-r - 1, r)],
            3: [(0, -r - 1.5), (r + 1.5, 0), (0, r + 1.5), (-r - 1.5, 0)],
        }.get(shape % 4)
        if corners is None:
            self.parts.append(f'<circle class="{look}" cx="{_number(x)}" cy="{_number(y)}" r="{_number(r)}">{_title(title)}</circle>')
            return
        steps = " ".join(f"{_number(x + dx)},{_number(y + dy)}" for dx, dy in corners)
        self.parts.append(f'<polygon class="{look}" points="{steps}">{_title(title)}</polygon>')

    def text(self, at: Point, words: str, look: str = "t12", anchor: str = "start", title: str = "") -> None:
        place = f'x="{_number(at[0])}" y="{_number(at[1])}"'
        anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text class="{look}" {place}{anchored}>{_title(title)}{escape(clean(words))}</text>')

    def _hatch(self, look: str) -> str:
        return f' fill="url(#{self.name}-hatch)"' if "hatch" in look.split() else ""

    def svg(self) -> str:
        """For a page that has the stylesheet."""
        return self._document(f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"', "", "")

    def picture(self) -> str:
        """One that stands alone: stylesheet, title and margins are its own, its colours those of daylight."""
        width, height = self.width + 2 * _MARGIN, self.height + 2 * _MARGIN + _TITLE
        style = f"<style>{in_daylight(looks(), self.label)}</style>"
        corner = f'x="-{_MARGIN}" y="-{_MARGIN + _TITLE}"'
        ground = f'<rect class="f-page" {corner} width="{_number(width)}" height="{_number(height)}"/>'
        title = f'<text class="t16 b" x="0" y="-{_TITLE - 12}">{escape(clean(self.label))}</text>'
        box = f'viewBox="-{_MARGIN} -{_MARGIN + _TITLE} {_number(width)} {_number(height)}"'
        return self._document(f'{box} width="{_number(width)}" height="{_number(height)}"', style, ground + title)

    def _document(self, attributes: str, style: str, ground: str) -> str:
        label = escape(clean(self.label), quote=True)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" role="img" aria-label="{label}" {attributes}>'
        return f"{head}{style}<defs>{_HATCH.format(name=self.name)}</defs>{ground}{''.join(self.parts)}</svg>"


_MARGIN = 28
_TITLE = 34
_HATCH = (
    '<pattern id="{name}-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="f-page" width="6" height="6"/><rect class="f-wait" width="2.4" height="6"/></pattern>'
)


def in_daylight(css: str, label: str) -> str:
    """Named colours as they are: what draws pictures knows no variables. Chinese takes a face that has all its words, or it is mixed."""
    if any(ord(char) >= 0x2E80 for char in label):
        css = css.replace("font-family: ", 'font-family: "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", ', 1)
    return re.sub(r"var\(--([a-z]+)\)", lambda found: LIGHT[found[1]], css)


def _title(title: str) -> str:
    return f"<title>{escape(clean(title))}</title>" if title else ""
