"""Pictures of the figures: resvg draws the SVG, with the fonts of the system."""

from collections.abc import Mapping
from typing import Any

from shardtools.bench.report.html._sheet import in_daylight, looks
from shardtools.errors import UsageError

_ZOOM = 2
"""Twice the size in CSS pixels: sharp on paper and on dense screens."""
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" class="figure" width="40" height="20"><style>{}</style><text y="15">{}</text></svg>'


def png(svgs: Mapping[str, str]) -> dict[str, bytes]:
    """By name, as ``figures`` names them. Of none it tells whether some could be drawn, before hours are spent on them.

    Raises UsageError where the extra `report` is not installed, or the system has no font.
    """
    resvg = _renderer()
    _require_font(resvg, "".join(svgs.values()))
    return {name: bytes(resvg.svg_to_bytes(svg_string=svg, zoom=_ZOOM)) for name, svg in svgs.items()}


def _renderer() -> Any:
    try:
        import resvg_py
    except ImportError:
        raise UsageError("expected the package resvg-py for --png; pip install 'shardtools[report]'") from None
    return resvg_py


def _require_font(resvg: Any, drawing: str) -> None:
    """Without a font that its style names a picture would come out with no word in it, and no error."""
    letters = {"A": "fonts-dejavu-core"} | ({"中": "fonts-noto-cjk"} if any("\u4e00" <= char <= "\u9fff" for char in drawing) else {})
    style = in_daylight(looks(), drawing)
    blank = resvg.svg_to_bytes(svg_string=_PROBE.format(style, ""))
    for letter, package in letters.items():
        if resvg.svg_to_bytes(svg_string=_PROBE.format(style, letter)) == blank:
            raise UsageError(f"expected a font that has {letter!r} for --png, and the system has none; apt-get install {package}")
