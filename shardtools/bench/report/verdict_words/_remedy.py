"""One thing to do about a bottleneck."""

from dataclasses import dataclass
from typing import Any

from shardtools.bench.report.verdict_words._said import Said


@dataclass(frozen=True)
class Remedy:
    """What to do, and what to type for it."""

    name: str
    """One word, the same in every report."""
    said: Said
    """In the imperative, without a full stop; the Chinese fits behind 建议."""
    options: str | None = None
    """Options of bench, a command or code, to be typed as it stands; None where there is nothing to type."""

    gain: float | None = None
    """Times as fast, where that was measured: what is known to help comes before what may."""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.said.as_json(), "options": self.options}
