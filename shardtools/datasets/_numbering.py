"""Gaps in the numbers of shards that nothing but their names describes."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardtools.units import plural

_NUMBERED = re.compile(r"(?P<head>.*?)(?P<number>[0-9]{1,18})(?P<tail>(?:-of-(?P<total>[0-9]{1,18}))?[^0-9/]*)", re.DOTALL)
_SUFFIX = re.compile(r"(?:\.tar|\.tar\.gz|\.tgz)\Z")
_SHOWN = 3


@dataclass
class _Series:
    """Names that differ in one number."""

    total: int | None
    """From names such as ``00003-of-00010``."""
    numbers: dict[int, str] = field(default_factory=dict)
    """The name of each."""
    width: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        first, last = min(self.numbers), max(self.numbers)
        if self.total is None:
            return first, last
        first = 1 if self.total in self.numbers and 0 not in self.numbers else 0
        return first, max(first + self.total - 1, last)


def gaps(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """For each series of numbered names with a gap: a name of the series, and in words what is missing.

    Where fewer than half of the numbers are there, they are taken for dates or ids and not for a numbering.
    """
    series: dict[tuple[str, str], _Series] = {}
    for name in names:
        stem, suffix = _stem(name)
        match = _NUMBERED.fullmatch(stem)
        if match is None:
            continue
        total = None if match["total"] is None else int(match["total"])
        one = series.setdefault((match["head"], match["tail"] + suffix), _Series(total))
        one.numbers[int(match["number"])] = name
        one.width = max(one.width, len(match["number"]) if match["number"].startswith("0") else 0)
    for (head, tail), one in series.items():
        first, last = one.bounds
        num_missing = last - first + 1 - len(one.numbers)
        if num_missing > 0 and (one.total is not None or num_missing <= len(one.numbers)):
            yield one.numbers[max(one.numbers)], _sentence(head, tail, one, num_missing)


def _sentence(head: str, tail: str, series: _Series, num_missing: int) -> str:
    first, last = series.bounds
    shown: list[str] = []
    number = first
    while len(shown) < min(_SHOWN, num_missing):
        if number not in series.numbers:
            shown.append(f"{head}{number:0{series.width}d}{tail}")
        number += 1
    more = f" and {num_missing - _SHOWN:,} more" if num_missing > _SHOWN else ""
    return f"expected {plural(last - first + 1, 'shard')} numbered without a gap, got none named {', '.join(shown)}{more}"


def _stem(name: str) -> tuple[str, str]:
    """The name without what says that it is a tar, and that."""
    match = _SUFFIX.search(name)
    return (name, "") if match is None else (name[: match.start()], match[0])
