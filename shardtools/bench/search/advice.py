"""What advice about settings is made of, and how settings are called in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardtools.bench.prediction import Limits, Prediction
from shardtools.bench.search import Cell, Found, Space
from shardtools.bench.spec import Settings, TrialSpec
from shardtools.bench.trial import TrialResult

Words = dict[str, str]


@dataclass(frozen=True)
class Advice:
    """What advice is made of."""

    found: Found
    space: Space
    base: TrialSpec
    settings_of: Callable[[Cell], Settings]
    foreseen: Callable[[Cell], Prediction | None]
    resources: Callable[[], Limits]
    """What there is to take."""
    results: Sequence[TrialResult]
    wanted_shm_bytes: int = 0
    """Of a faster setting that has no room yet."""


def name_of(cell: Cell) -> str:
    if cell.num_workers == 0:
        return "num_workers=0"
    return f"num_workers={cell.num_workers} prefetch_factor={cell.prefetch_factor}" + (" pin_memory=True" if cell.pin_memory else "")


def both(en: str, zh: str) -> Words:
    return {"en": en, "zh": zh}
