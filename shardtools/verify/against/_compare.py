"""Two bags of samples by their digests: which keys differ, counted exactly, and the first of them by name."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shardtools.digests import DigestTable, Records, as_digests, grouped, together
from shardtools.duplicates import DIGEST_BYTES

RECORD_BYTES = 2 * DIGEST_BYTES
"""The digest of a sample's key, then that of its content."""


@dataclass
class Differences:
    """How many samples differ in each way, and the key digests of the first ``limit``."""

    limit: int
    num_missing: int = 0
    """In the source, and not in the dataset as often."""
    num_foreign: int = 0
    """In the dataset, and not in the source as often."""
    num_changed: int = 0
    """In both under one key, with other content."""
    missing: list[bytes] = field(default_factory=list)
    foreign: list[bytes] = field(default_factory=list)
    changed: list[bytes] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.num_missing + self.num_foreign + self.num_changed > 0

    @property
    def wanted(self) -> frozenset[bytes]:
        """The key digests of the samples that are to be named."""
        return frozenset([*self.missing, *self.foreign, *self.changed])

    def add(self, key: bytes, num_only_source: int, num_only_stored: int) -> None:
        """One key; contents that both sides have are counted no more."""
        num_changed = min(num_only_source, num_only_stored)
        self.num_changed += num_changed
        self.num_missing += num_only_source - num_changed
        self.num_foreign += num_only_stored - num_changed
        for count, keys in (
            (num_changed, self.changed),
            (num_only_source - num_changed, self.missing),
            (num_only_stored - num_changed, self.foreign),
        ):
            if count and len(keys) < self.limit:
                keys.append(key)


def compare(source: DigestTable, stored: DigestTable, limit: int) -> Differences:
    """What differs between the two as multisets of (key, content). Memory: a slice of both at a time."""
    differences = Differences(limit)
    for ours, theirs in together([source, stored]):
        # Sound datasets have every key once, so both slices are in the very same order.
        if ours.shape == theirs.shape and np.array_equal(ours, theirs):
            continue
        for key in _differing(ours, theirs):
            differences.add(*key)
    return differences


class _Key(NamedTuple):
    digest: bytes
    num_only_source: int
    num_only_stored: int


def _differing(source: Records, stored: Records) -> Iterator[_Key]:
    """Every key whose contents differ, in order."""
    rows, surplus = _surplus(source, stored)
    only_source, only_stored = np.maximum(surplus, 0), np.maximum(-surplus, 0)
    if not len(rows):
        return
    keys = as_digests(rows)
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    for begin, left, right in zip(
        begins.tolist(), np.add.reduceat(only_source, begins).tolist(), np.add.reduceat(only_stored, begins).tolist(), strict=True
    ):
        yield _Key(keys[begin].tobytes(), left, right)


def _surplus(source: Records, stored: Records) -> tuple[Records, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """The records that one side has more often, sorted, and how much more often the source has each."""
    rows = np.concatenate([source, stored])
    order, begins = grouped(rows)
    side = np.where(order < len(source), 1, -1)
    surplus = np.add.reduceat(side, begins)
    kept = surplus != 0
    return rows[order[begins[kept]]], surplus[kept]
