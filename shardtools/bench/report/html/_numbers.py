"""Numbers as people read them: two or three digits, a unit, and a word where there is none."""

from collections.abc import Sequence

NONE = "n/a"


def rate(value: float | None) -> str:
    """Samples a second."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 0.05 or value == 0 else "< 0.1 ms"


def seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


def percent(share: float | None) -> str:
    if share is None:
        return NONE
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def size(num_bytes: float | None) -> str:
    """Decimal units, as disks and ``--shm-size`` are bought."""
    if num_bytes is None:
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000:
            return f"{num_bytes:.3g} {unit}" if unit != "B" else f"{num_bytes:.0f} B"
        num_bytes /= 1000
    return f"{num_bytes:,.3g} TB"


def times(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.2f}×"


def interval(ci: Sequence[float] | None) -> str:
    return "" if ci is None else f"{ci[0]:.2f}–{ci[1]:.2f}"


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def top_of_axis(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten: ticks at its halves are round."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 10.0 ** -len(f"{1 / value:.0f}")
    return next((power * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * step >= value), value)
