"""What verify can find, as values: kind, place, detail, and what to do."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardtools.units import printable

LEVELS = {
    1: "the manifest or index is sound, and the files it names are there with their exact sizes and nothing else",
    2: "every file has the recorded digest",
    3: "every byte of every shard parses, and agrees with manifest, index and offsets; no key occurs twice",
    4: "no content occurs under two keys",
    5: "every sample is delivered exactly once in an epoch",
    6: "every sample of the source is in the dataset exactly once and unchanged",
    7: "the readers named as targets take every sample as it is",
}

_REBUILD = "restore the file from a sound copy, or make the dataset again"
_REINDEX = "restore the file from a sound copy, or run shardtools index, which makes it anew from sound shards"
_READER = "mend the reader: all ranks and workers must walk one list in one order, and each sample must belong to exactly one of them"


class Kind(NamedTuple):
    """What is true of every finding of one kind."""

    level: int
    remedy: str
    """What to do about it."""
    is_note: bool = False
    """Worth knowing, and no fault unless ``--strict`` says so."""


KINDS: dict[str, Kind] = {
    "unfinished-build": Kind(1, "run the same pack command again: it goes on where it stopped"),
    "manifest-damaged": Kind(1, _REINDEX),
    "manifest-contradiction": Kind(1, _REBUILD),
    "index-damaged": Kind(1, _REINDEX),
    "missing-file": Kind(1, _REBUILD),
    "wrong-size": Kind(1, _REBUILD),
    "extra-file": Kind(1, "move it out of the dataset's folder: readers that list files would take it for data"),
    "number-gap": Kind(1, "find the shards that are missing, or renumber the others if there never were more", True),
    "unsafe-name": Kind(1, "do not use this dataset before you know who made it"),
    "wrong-sha256": Kind(2, _REBUILD),
    "wrong-hash": Kind(2, _REBUILD),
    "index-contradiction": Kind(3, _REBUILD),
    "damaged-shard": Kind(3, _REBUILD),
    "not-canonical": Kind(3, "the shard was changed by another program: " + _REBUILD),
    "not-a-file": Kind(3, "pack the files themselves: readers pass over links and devices in silence"),
    "illegal-key": Kind(3, "pack the source again: keys are then escaped"),
    "illegal-field": Kind(3, "pack the source again with other field names"),
    "no-field": Kind(3, "pack the source again: the file's name needs an extension"),
    "field-twice": Kind(3, "keep one of the two and pack again: readers stop there or lose one"),
    "split-sample": Kind(3, "pack the source again: readers take the parts for several samples"),
    "wrong-config": Kind(3, _REBUILD),
    "undecodable-value": Kind(3, "correct the value in the source and pack again"),
    "wrong-count": Kind(3, _REBUILD),
    "wrong-field-sets": Kind(3, _REBUILD),
    "wrong-offsets": Kind(3, _REINDEX),
    "duplicate-key": Kind(3, "remove or rename one of the two and pack again"),
    "broken-row": Kind(3, _REBUILD),
    "broken-document": Kind(3, _REBUILD),
    "token-ledger": Kind(3, _REBUILD),
    "wrong-split": Kind(3, "pack the source again with --overwrite: until then readers of one split see samples of another"),
    "duplicate-content": Kind(4, "keep one of the two if they are one sample, and pack again", True),
    "read-twice": Kind(5, _READER),
    "never-read": Kind(5, _READER),
    "lost-tail": Kind(5, "let the reader deliver the last, smaller batch of every worker (drop_last=False), or pack a multiple"),
    "unknown-id": Kind(5, "let the reader deliver the stored key, or name the function that finds it with --id"),
    "reader-failed": Kind(5, "mend what the reader reports, or leave this world size or number of workers out"),
    "resume-repeats": Kind(5, "mend the reader's state: what was delivered before the stop must not come again"),
    "resume-skips": Kind(5, "mend the reader's state: what was not delivered before the stop must still come"),
    "same-order": Kind(5, "let the reader know the epoch, so that each is shuffled anew", True),
    "padding": Kind(5, "choose a world size that divides the number of samples where an exact epoch matters", True),
    "empty-worker": Kind(5, "use fewer workers or make more, smaller shards: ranks times workers should divide the shards", True),
    "uneven-ranks": Kind(5, "let the job end an epoch together: a rank that has no batch left makes the others wait", True),
    "missing-sample": Kind(6, "pack the source again with --overwrite"),
    "foreign-sample": Kind(6, "find out where it comes from, or pack the source again with --overwrite"),
    "changed-sample": Kind(6, "pack the source again with --overwrite if the source is right"),
    "changed-order": Kind(6, "pack the source again with --overwrite: the shards were made by another program"),
    "changed-source": Kind(6, "give the source as it was packed, or pack it again with --overwrite"),
    "ledger-open": Kind(6, "pack the source again with --overwrite"),
    "target-drops": Kind(7, "rename what is dropped and pack again"),
    "target-merges": Kind(7, "give the samples names that differ in more than what the reader looks at, and pack again"),
    "target-renames": Kind(7, "ask the reader for the name it gives, or rename and pack again"),
    "target-changes": Kind(7, "give the values one type, or store them as the reader does, and pack again"),
    "target-rejects": Kind(7, "pack again as the reader demands, or take another reader"),
    "case-twins": Kind(7, "rename one of the two before extracting to such a file system", True),
    "could-not-look": Kind(0, "make the file readable on this machine and verify again"),
}
"""``could-not-look`` says nothing against the data."""


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
    num: int = 1
    """How many it stands for: more than one where it counts what is not listed."""

    @property
    def level(self) -> int:
        return KINDS[self.kind].level

    @property
    def remedy(self) -> str:
        return KINDS[self.kind].remedy

    @property
    def is_note(self) -> bool:
        return KINDS[self.kind].is_note

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "level": self.level,
            "note": self.is_note,
            "shard": None if self.shard is None else printable(self.shard),
            "key": None if self.key is None else printable(self.key),
            "offset": self.offset,
            "count": self.num,
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

    def add(
        self, kind: str, detail: str, shard: str | None = None, key: str | None = None, offset: int | None = None, num: int = 1
    ) -> None:
        """``num`` above one: the finding counts as many that are not listed."""
        assert kind in KINDS, kind
        if num > 1:
            self.found.append(Finding(kind, shard, key, offset, detail, num))
            return
        self.counts[kind, shard] += 1
        if self.counts[kind, shard] <= self.limit:
            self.found.append(Finding(kind, shard, key, offset, detail))

    @property
    def num_added(self) -> int:
        """Grows with every finding that is added here, listed or not, and with those counted elsewhere."""
        return len(self.found) + self.counts.total()

    def extend(self, findings: Iterable[Finding]) -> None:
        """Findings that were counted elsewhere."""
        self.found += findings

    def all(self) -> tuple[Finding, ...]:
        """What was kept, then for each kind and file how many more there are."""
        more = [
            Finding(
                kind,
                shard,
                None,
                None,
                f"expected none of this kind, got {count - self.limit:,} more{' in this file' if shard else ''}, not listed",
                count - self.limit,
            )
            for (kind, shard), count in self.counts.items()
            if count > self.limit
        ]
        return (*self.found, *more)
