"""Numbers that are missing among shards that nothing but their names describes."""

import re
from collections.abc import Iterable, Iterator

# The names this package, MDSWriter and most ShardWriters give.
_NUMBERED = re.compile(r"(?P<head>(?:.*/)?(?:train-|shard\.))(?P<number>[0-9]{5,18})(?P<tail>\.tar|\.mds)(?:\.[a-z0-9]+)?", re.DOTALL)


def gaps(names: Iterable[str], from_zero: bool) -> Iterator[str]:
    """For each series of numbered names, the first that is missing, in words; ``from_zero`` where the series must begin with 0."""
    series: dict[tuple[str, str], dict[int, str]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            series.setdefault((match["head"], match["tail"]), {})[int(match["number"])] = name
    for (head, tail), found in series.items():
        first = 0 if from_zero else min(found)
        missing = next((number for number in range(first, first + len(found)) if number not in found), None)
        width = min(len(name.removeprefix(head).partition(".")[0]) for name in found.values())
        if missing is not None:
            yield f"expected shards numbered without a gap up to {found[max(found)]}, got none named {head}{missing:0{width}d}{tail}"
