"""What verify can find, as values: kind, place, detail, and what to do."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from shardtools.units import printable

LEVELS = {
    1: "the manifest or index is sound, and the files it names are there with their exact sizes and nothing else",
    2: "every file has the recorded digest",
    3: "every byte of every shard parses, and agrees with manifest, index and offsets; no key occurs twice",
}

_REBUILD = "restore the file from a sound copy, or pack the dataset again with --overwrite"
_RESTORE = "restore the file from a sound copy"
KINDS: dict[str, tuple[int, str]] = {
    "unfinished-build": (1, "run the same pack command again: it goes on where it stopped"),
    "manifest-damaged": (1, _REBUILD),
    "manifest-contradiction": (1, _REBUILD),
    "index-damaged": (1, _REBUILD),
    "missing-file": (1, _REBUILD),
    "wrong-size": (1, _REBUILD),
    "extra-file": (1, "move it out of the dataset's folder: readers that list files would take it for data"),
    "unsafe-name": (1, "do not use this dataset before you know who made it"),
    "wrong-sha256": (2, _REBUILD),
    "wrong-hash": (2, _REBUILD),
    "index-contradiction": (3, _REBUILD),
    "damaged-shard": (3, _REBUILD),
    "not-canonical": (3, "the shard was changed by another program: " + _REBUILD),
    "not-a-file": (3, "pack the files themselves: readers pass over links and devices in silence"),
    "illegal-key": (3, "pack the source again: keys are then escaped"),
    "illegal-field": (3, "pack the source again with other field names"),
    "no-field": (3, "pack the source again: the file's name needs an extension"),
    "field-twice": (3, "keep one of the two and pack again: readers stop there or lose one"),
    "split-sample": (3, "pack the source again: readers take the parts for several samples"),
    "wrong-config": (3, _REBUILD),
    "undecodable-value": (3, "correct the value in the source and pack again"),
    "wrong-count": (3, _REBUILD),
    "wrong-field-sets": (3, _REBUILD),
    "wrong-offsets": (3, _RESTORE),
    "duplicate-key": (3, "remove or rename one of the two and pack again"),
    "could-not-look": (0, "make the file readable on this machine and verify again"),
}
"""The level that finds each kind, and what to do about it. ``could-not-look`` says nothing against the data."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    """One of KINDS."""
    shard: str | None
    """The file it is in, below the dataset's folder."""
    key: str | None
    offset: int | None
    """Byte in the file, or in the uncompressed shard where it is compressed."""
    detail: str
    """What was expected and what came."""

    @property
    def level(self) -> int:
        return KINDS[self.kind][0]

    @property
    def remedy(self) -> str:
        return KINDS[self.kind][1]

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "level": self.level,
            "shard": None if self.shard is None else printable(self.shard),
            "key": None if self.key is None else printable(self.key),
            "offset": self.offset,
            "detail": printable(self.detail),
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        """``kind: shard, sample key, byte 512: detail; remedy``."""
        key = None if self.key is None else f"sample {self.key!r}"
        offset = None if self.offset is None else f"byte {self.offset}"
        place = ", ".join(part for part in (self.shard, key, offset) if part is not None)
        return printable(f"{self.kind}: {place + ': ' if place else ''}{self.detail}; {self.remedy}")


@dataclass
class Findings:
    """Collects findings; of one kind in one file at most ``limit`` are kept, the others counted."""

    limit: int
    found: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def add(self, kind: str, detail: str, shard: str | None = None, key: str | None = None, offset: int | None = None) -> None:
        assert kind in KINDS, kind
        self.counts[kind, shard] += 1
        if self.counts[kind, shard] <= self.limit:
            self.found.append(Finding(kind, shard, key, offset, detail))

    def extend(self, findings: Iterable[Finding]) -> None:
        """Findings that were counted elsewhere."""
        self.found += findings

    def all(self) -> tuple[Finding, ...]:
        """What was kept, then for each kind and file how many more there are."""
        more = [
            Finding(kind, shard, None, None, f"expected none of this kind, got {count - self.limit:,} more in this file, not listed")
            for (kind, shard), count in self.counts.items()
            if count > self.limit
        ]
        return (*self.found, *more)
