"""Gaps in the numbers of shards that nothing but their names describes."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardtools.units import plural

_NUMBERED = re.compile(r"(?P<head>.*?)(?P<number>[0-9]{1,18})(?P<tail>(?:-of-(?P<total>[0-9]{1,18}))?[^0-9/]*)", re.DOTALL)
_SUFFIX = re.compile(r"(?:\.tar(?:\.gz)?|\.tgz|\.mds(?:\.[a-z0-9]+)?)\Z")
_SHOWN = 3


@dataclass
class _Series:
    """Names that differ in one number, and perhaps in how the files are compressed."""

    total: int | None
    """From names such as ``00003-of-00010``."""
    suffix: str
    """Of the one that was named first."""
    from_zero: bool
    numbers: dict[int, str] = field(default_factory=dict)
    """The name of each."""
    width: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        first, last = 0 if self.from_zero else min(self.numbers), max(self.numbers)
        if self.total is None:
            return first, last
        first = 1 if self.total in self.numbers and 0 not in self.numbers else 0
        return first, max(first + self.total - 1, last)


def number_gaps(names: Iterable[str], is_certain: bool = False, from_zero: bool = False) -> Iterator[tuple[str, str]]:
    """For each series of numbered names with a gap: a name of the series, and in words what is missing.

    Unless it ``is_certain`` that they are numbered, fewer than half of the numbers are taken for dates or ids. ``from_zero``: where
    a series must begin with 0.
    """
    series: dict[tuple[str, str], _Series] = {}
    for name in names:
        stem, suffix = _stem(name)
        match = _NUMBERED.fullmatch(stem)
        if match is None:
            continue
        total = None if match["total"] is None else int(match["total"])
        one = series.setdefault((match["head"], match["tail"]), _Series(total, suffix, from_zero))
        one.numbers[int(match["number"])] = name
        one.width = max(one.width, len(match["number"]) if match["number"].startswith("0") else 0)
    for (head, tail), one in series.items():
        first, last = one.bounds
        num_missing = last - first + 1 - len(one.numbers)
        if num_missing > 0 and (is_certain or one.total is not None or num_missing <= len(one.numbers)):
            yield one.numbers[max(one.numbers)], _sentence(head, tail, one, num_missing)


def _sentence(head: str, tail: str, series: _Series, num_missing: int) -> str:
    first, last = series.bounds
    shown: list[str] = []
    number = first
    while len(shown) < min(_SHOWN, num_missing):
        if number not in series.numbers:
            shown.append(f"{head}{number:0{series.width}d}{tail}{series.suffix}")
        number += 1
    more = f" and {num_missing - _SHOWN:,} more" if num_missing > _SHOWN else ""
    return f"expected {plural(last - first + 1, 'shard')} numbered without a gap, got none named {', '.join(shown)}{more}"


def _stem(name: str) -> tuple[str, str]:
    """The name without what says that it is a shard, and that."""
    match = _SUFFIX.search(name)
    return (name, "") if match is None else (name[: match.start()], match[0])
