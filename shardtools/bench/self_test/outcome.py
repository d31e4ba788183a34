"""What came of planted faults: each verdict beside the class that is right, a table, an exit code."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from shardtools.bench.self_test.cases import CONTROLS, Case

SCHEMA = "shardtools.selftest/1"
Mark = Literal["right", "inconclusive", "wrong", "not run"]
_INCONCLUSIVE = "inconclusive"
_MIN_RIGHT_SHARE = 0.9
_WIDTH = 80


@dataclass(frozen=True)
class Outcome:
    """Of one run of one case."""

    case: Case
    verdict: str | None
    """Its class; None where the case was not run."""
    confidence: str | None = None
    ratio: float | None = None
    """Of the loader's rate without the blamed stage to its rate as it is; None where the verdict blames no stage."""
    ci: tuple[float, float] | None = None
    seconds: float = 0.0
    sentence: str = ""
    """What the user is told; of a case that was not run, why."""
    evidence: tuple[str, ...] = ()

    @property
    def mark(self) -> Mark:
        """A fault is found only by its own class. A control is right when nothing is blamed, so also when it is left open."""
        if self.verdict is None:
            return "not run"
        right = (*CONTROLS, _INCONCLUSIVE) if self.case.is_control else (self.case.planted,)
        if self.verdict in right:
            return "right"
        return "inconclusive" if self.verdict == _INCONCLUSIVE else "wrong"

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "planted": self.case.planted,
            "how": self.case.how,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "ratio": self.ratio,
            "ci": None if self.ci is None else list(self.ci),
            "seconds": round(self.seconds, 1),
            "mark": self.mark,
            "sentence": self.sentence,
            "evidence": list(self.evidence),
        }


@dataclass(frozen=True)
class SelfTest:
    """All outcomes, in the order they were run."""

    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def run(self) -> list[Outcome]:
        """Without those that were not run."""
        return [outcome for outcome in self.outcomes if outcome.mark != "not run"]

    @property
    def num_right(self) -> int:
        return sum(outcome.mark == "right" for outcome in self.run)

    @property
    def exit_code(self) -> int:
        """1 where a verdict was wrong, where fewer than 90 % were right, and where nothing was run."""
        is_wrong = any(outcome.mark == "wrong" for outcome in self.run)
        return 1 if is_wrong or not self.run or self.num_right < _MIN_RIGHT_SHARE * len(self.run) else 0

    def as_json(self) -> dict[str, Any]:
        """``confusion`` has an entry a run."""
        return {
            "schema": SCHEMA,
            "confusion": [outcome.as_json() for outcome in self.outcomes],
            "num_run": len(self.run),
            "num_right": self.num_right,
            "seconds": round(self.seconds, 1),
            "exit_code": self.exit_code,
        }

    def lines(self) -> Iterator[str]:
        """For a terminal of 80 columns: a line a run, which classes were taken for which, and the sum."""
        yield f"{'case':<15}{'planted':<15}{'verdict':<15}{'confidence':<13}{'ratio':>7}{'s':>6}"
        for outcome in self.outcomes:
            yield _line(outcome)
        yield ""
        yield from self._confusion()
        yield f"{self.num_right} of {len(self.run)} right, in {self.seconds / 60:.1f} minutes"
        for outcome in self.outcomes:
            if outcome.mark != "right" or outcome.verdict == _INCONCLUSIVE:
                told = f"{outcome.case.name} ({outcome.case.how}): {outcome.mark}. {outcome.sentence}"
                yield from textwrap.wrap(told, _WIDTH, subsequent_indent="  ")
                for line in outcome.evidence:
                    yield from textwrap.wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="    ")

    def _confusion(self) -> Iterator[str]:
        """Rows are what was planted, columns what was found, each class by its number."""
        planted = list(dict.fromkeys(outcome.case.planted for outcome in self.run))
        others = sorted({str(outcome.verdict) for outcome in self.run} - set(planted))
        columns = [*planted, *others]
        if not columns:
            return
        yield f"{'planted / found':<19}" + "".join(f"{number:>4}" for number in range(1, len(columns) + 1))
        for number, name in enumerate(columns, 1):
            found = [outcome.verdict for outcome in self.run if outcome.case.planted == name]
            counts = "".join(f"{found.count(column) or '.':>4}" for column in columns) if name in planted else ""
            yield f"{number:>2} {name:<16}{counts}"
        yield ""


def _line(outcome: Outcome) -> str:
    ratio = "" if outcome.ratio is None else f"{outcome.ratio:.2f}x"
    verdict, confidence = outcome.verdict or "-", outcome.confidence or "-"
    flag = f"  {outcome.mark.upper()}" if outcome.mark in ("wrong", "not run") else ""
    return f"{outcome.case.name:<15}{outcome.case.planted:<15}{verdict:<15}{confidence:<13}{ratio:>7}{outcome.seconds:>6.0f}{flag}"
