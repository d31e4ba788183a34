"""A sentence in both languages, and how numbers look in either."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """One statement; the Chinese as an engineer would write it, not word for word."""

    en: str
    zh: str

    def as_json(self) -> dict[str, str]:
        return {"en": self.en, "zh": self.zh}


def rate(value: float) -> str:
    """Samples a second, without the unit."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def spaced(name: str) -> str:
    """Behind a Chinese character, Latin letters stand apart."""
    return f" {name}" if name[:1].isascii() else name


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def times(ratio: float, ci: tuple[float, float] | None) -> str:
    """``1.8x as fast (1.6-2.0x)``."""
    return f"{ratio:.1f}x as fast" + ("" if ci is None else f" ({ci[0]:.1f}-{ci[1]:.1f}x)")


def times_zh(ratio: float, ci: tuple[float, float] | None) -> str:
    """``原来的 1.8 倍（1.6–2.0）``."""
    return f"原来的 {ratio:.1f} 倍" + ("" if ci is None else f"（{ci[0]:.1f}–{ci[1]:.1f}）")
