"""Which samples of a whole input are taken, and which split each belongs to: what no sample can tell by itself, or only by its key."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

KEY_NAME = "key"
"""What ``--where`` and ``--group-by`` call the key of a sample whose record has no field of that name."""
_RANGE = 2**64


@dataclass(frozen=True)
class Selection:
    """Part of a recipe; by default every sample is taken and there are no splits."""

    limit: int | None = None
    """At most so many samples, the first ones of those that are not left out for another reason. None: all."""
    dedup: str | None = None
    """``key`` or ``content``: of samples that share it only the first is taken. None: a key that repeats is an error."""
    split: tuple[tuple[str, str], ...] = ()
    """Name and share of each split, in order; the share is a decimal number as it was typed, and they add up to one."""
    group_by: str | None = None
    """Samples with the same value of this record field are in the same split. None: each sample is by itself, by its key."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(name for name, _ in self.split)

    @property
    def extras(self) -> tuple[str, ...]:
        """What the source has to give beside the fields."""
        return () if self.group_by is None else (self.group_by,)

    @property
    def looks_ahead(self) -> bool:
        """Whether what becomes of a sample depends on those before it, so that the input is read once before it is built."""
        return self.limit is not None or self.dedup is not None

    def as_json(self) -> dict[str, Any]:
        """Plain data, empty where nothing is selected."""
        chosen = {"limit": self.limit, "dedup": self.dedup, "split": [list(pair) for pair in self.split], "group_by": self.group_by}
        return {name: value for name, value in chosen.items() if value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Selection":
        """What ``as_json`` was made of."""
        split = tuple((name, share) for name, share in data.get("split", ()))
        return cls(data.get("limit"), data.get("dedup"), split, data.get("group_by"))

    def split_of(self, names: Sequence[bytes]) -> list[str]:
        """The split of each sample, by its key or by the text of its group; the empty name where there are no splits.

        The first 8 bytes of the SHA-256 of the name, as a share of all they can be: a name's split does not depend on the others.
        """
        if not self.split:
            return [""] * len(names)
        shares = accumulate(Fraction(share) for _, share in self.split)
        bounds = [int(share * _RANGE) for share in shares][:-1]
        digests = (int.from_bytes(hashlib.sha256(name).digest()[:8], "big") for name in names)
        return [self.split[bisect_right(bounds, digest)][0] for digest in digests]


def canonical_text(value: Any) -> bytes:
    """JSON with sorted keys and no blanks; numbers that are equal by value, 1, 1.0 and true, are one. Bytes are taken for Latin-1."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":")).encode()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _canonical(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value.decode("latin-1") if isinstance(value, bytes) else value
