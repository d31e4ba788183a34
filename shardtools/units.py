"""Sizes, budgets and names as people write and read them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from shardtools.errors import UsageError

_SHOWN_NAMES = 8
_SUFFIX_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def parse_bytes(text: str) -> int:
    """Bytes for text such as ``256MiB``, ``64MB`` or ``1048576``.

    Raises UsageError for anything else, for zero and for fractions of a byte.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    factor = _SUFFIX_BYTES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise UsageError(f"expected a size such as 256MiB, 64MB or 1048576, got {text!r}")
    whole, _, fraction = match[1].partition(".")
    scaled = int(whole + fraction) * factor
    unit: int = 10 ** len(fraction)
    num_bytes, rest = divmod(scaled, unit)
    if rest or num_bytes == 0:
        raise UsageError(f"expected a size of a whole number of bytes above 0, got {text!r}")
    return num_bytes


def format_bytes(num_bytes: float) -> str:
    """A size for people, in binary units with one decimal: ``3.0 MiB``."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(value, 1) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """``1 file``, ``1,200 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str | bytes) -> str:
    """Text that JSON and any UTF-8 output can take: bytes of a file name that are no UTF-8 become ``\\xff``."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "backslashreplace")
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        # Half of a surrogate pair, as JSON can spell one, stands for no byte.
        return text.encode("utf-8", "backslashreplace").decode()


def listed(names: Sequence[str]) -> str:
    """The first names for a message, and how many more there are."""
    more = f" and {len(names) - _SHOWN_NAMES:,} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(printable, names[:_SHOWN_NAMES])) + more or "none"


@dataclass(frozen=True)
class Budget:
    """How many bad samples a run tolerates: a number, or a percentage of the samples read."""

    count: int | None = 0
    percent: Decimal | None = None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """``10`` or ``0.5%``. Raises UsageError for anything else."""
        match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", text.strip())
        if match is None or (match[2] and Decimal(match[2]) > 100):
            raise UsageError(f"expected --max-bad as a count (10) or a percentage (0.5%), got {text!r}")
        return cls(int(match[1]), None) if match[1] else cls(None, Decimal(match[2]))

    def allows(self, num_bad: int, num_read: int) -> bool:
        """Whether ``num_bad`` of ``num_read`` samples, the whole dataset read, may be bad."""
        if self.percent is not None:
            return num_bad * 100 <= self.percent * num_read
        return num_bad <= (self.count or 0)

    def allows_so_far(self, num_bad: int) -> bool:
        """Whether a run that is still reading may go on; a percentage is only settled at the end."""
        return self.percent is not None or num_bad <= (self.count or 0)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent is not None else str(self.count)
