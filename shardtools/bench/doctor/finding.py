"""What the doctor found: how bad, about what, and one sentence that ends in what to do."""

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "fault"]
LEVELS: tuple[Level, ...] = ("fault", "warning", "ok", "note")
"""What is to be done, then that all is well, then what nobody need do anything about."""


@dataclass(frozen=True)
class Finding:
    """``fault``: training with workers fails here. ``warning``: it will at some settings, or time is lost. ``note``: worth knowing."""

    level: Level
    topic: str
    sentence: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Those of one level in the order found."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))
