"""What one reader would make of a dataset, counted by rule: a million samples that share a fault are one finding."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardtools.units import plural
from shardtools.verify.findings import Findings

NUM_EXAMPLES = 3
_PROMISES = {
    "target-drops": "to deliver all there is",
    "target-merges": "to tell all samples apart",
    "target-renames": "to leave every name as it is",
    "target-changes": "to leave every value as it is",
    "target-rejects": "to read every sample",
    "case-twins": "to tell all samples apart",
}


class Rule(NamedTuple):
    """One thing a reader does to samples that are not made for it."""

    kind: str
    """Of the finding."""
    what: str
    """Ends a sentence that begins ``got 3 members``: which they are, and what comes of it."""
    noun: str = "member"


class At(NamedTuple):
    """A place to show."""

    shard: str
    key: str | None = None
    offset: int | None = None
    """Byte of the uncompressed shard."""
    name: str | None = None
    """Of the member."""

    def __str__(self) -> str:
        name = "" if self.name is None else f"{self.name!r} in "
        return f"{name}{self.shard}" + ("" if self.offset is None else f" at byte {self.offset}")


@dataclass
class _Tally:
    count: int = 0
    examples: list[At] = field(default_factory=list)


@dataclass
class Complaints:
    """Collects what one reader does. Memory: three examples a rule."""

    reader: str
    tallies: dict[Rule, _Tally] = field(default_factory=dict)

    def add(self, rule: Rule, at: At, count: int = 1) -> None:
        """``count`` of a kind, of which the place of one is known."""
        self.add_all(rule, [at], count)

    def add_all(self, rule: Rule, places: Sequence[At], count: int) -> None:
        """``count`` of a kind, of which some places are known."""
        tally = self.tallies.setdefault(rule, _Tally())
        tally.count += count
        tally.examples += places[: NUM_EXAMPLES - len(tally.examples)]

    def report(self, findings: Findings) -> None:
        """One finding a rule, at the place of its first example."""
        for rule, tally in self.tallies.items():
            got = f"{plural(tally.count, rule.noun)} {rule.what}"
            detail = f"expected {self.reader} {_PROMISES[rule.kind]}, got {got}"
            if not tally.examples:  # the files changed before they could be read again for them
                findings.add(rule.kind, detail)
                continue
            first = tally.examples[0]
            findings.add(rule.kind, f"{detail}, such as {', '.join(map(str, tally.examples))}", first.shard, first.key, first.offset)
