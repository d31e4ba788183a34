"""The selection that a user asks for, in words: ``--limit``, ``--dedup``, ``--split`` and ``--group-by``."""

import re
from collections.abc import Mapping
from decimal import Decimal

from shardtools.errors import UsageError
from shardtools.selection import Selection

_DEDUPS = ("key", "content")
_SPLIT_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
_SHARE = re.compile(r"[0-9]*\.?[0-9]{1,20}")
"""Of so many digits at most, sums are exact."""


def selection_of(words: Mapping[str, str]) -> Selection:
    """The selection of options by their names. Raises UsageError for the first that is not as it should be."""
    limit, dedup, group_by = words.get("limit"), words.get("dedup"), words.get("group_by")
    if limit is not None and not (limit.isdecimal() and int(limit)):
        raise UsageError(f"expected --limit of 1 or more, got {limit!r}")
    if dedup is not None and dedup not in _DEDUPS:
        raise UsageError(f"expected --dedup of {' or '.join(_DEDUPS)}, got {dedup!r}")
    split = _parse_split(words["split"]) if "split" in words else ()
    if group_by is not None and not split:
        raise UsageError("expected --group-by with --split, which it keeps from cutting a group, got it alone; add --split or leave it out")
    return Selection(None if limit is None else int(limit), dedup, split, group_by)


def _parse_split(text: str) -> tuple[tuple[str, str], ...]:
    """``train=0.98,val=0.02``; the shares must add up to one."""
    pairs = [tuple(piece.strip() for piece in part.split("=")) for part in text.split(",")]
    fault = f"expected --split as NAME=SHARE,NAME=SHARE with every name once and shares above 0 that add up to 1, got {text!r}"
    if not all(len(pair) == 2 and _SPLIT_NAME.fullmatch(pair[0]) and _SHARE.fullmatch(pair[1]) for pair in pairs):
        raise UsageError(f"{fault}; names are of a-z, 0-9 and _, shares of at most 20 digits")
    shares = [Decimal(share) for _, share in pairs]
    if sum(shares) != 1 or min(shares) <= 0 or len({name for name, _ in pairs}) < len(pairs):
        raise UsageError(fault)
    return tuple((name, str(share.normalize())) for (name, _), share in zip(pairs, shares, strict=True))
