"""That no key, and on demand no content, occurs twice over the whole dataset; both places of one that does are named."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from shardtools.datasets import Dataset, Shard
from shardtools.digests import DigestTable, as_digests, thinned
from shardtools.duplicates import DIGEST_BYTES
from shardtools.verify.findings import Findings
from shardtools.verify.stored import Place, readable_again

Spot = tuple[int, int]
"""Index of a shard, and the position of a sample in it."""
_MAX_SPOTS = 100


class Repeats(NamedTuple):
    """The digests that several samples have."""

    num_digests: int
    num_surplus: int
    """Samples beyond the first of each."""
    listed: dict[bytes, list[Spot]]
    """Some of the digests with their places, at most a hundred of each."""


def find_repeats(table: DigestTable, limit: int) -> Repeats:
    """What occurs more than once in a table of ``stored.RECORD_BYTES`` records. Memory does not grow with the table."""
    num_digests = num_surplus = 0
    listed: dict[bytes, list[Spot]] = {}
    for records, num_records in thinned(table, _MAX_SPOTS):
        digests = as_digests(records)
        is_repeat = digests[1:] == digests[:-1]
        rows = np.flatnonzero(is_repeat)
        num_surplus += num_records - (len(records) - len(rows))
        # A run of equal digests begins where the row before it is no repeat.
        firsts = rows[np.concatenate([[True], rows[1:] != rows[:-1] + 1])] if len(rows) else rows
        num_digests += len(firsts)
        for first in firsts[: max(0, limit - len(listed))].tolist():
            end = first + 1
            while end < len(is_repeat) and is_repeat[end]:
                end += 1
            spots = records[first : end + 1, DIGEST_BYTES:].copy().view("<u4")
            listed[digests[first].tobytes()] = sorted((int(shard), int(row)) for shard, row in spots)
    return Repeats(num_digests, num_surplus, listed)


def check_keys(dataset: Dataset, table: DigestTable, findings: Findings) -> None:
    """Add a finding for every key that more than one sample has. Reads shards again only where there is one."""
    repeats = find_repeats(table, findings.limit)
    num_listed = 0
    for found in _resolved(dataset, repeats):
        num_listed += len(found) - 1
        by_key: dict[str, list[Place]] = {}
        for place in found:
            by_key.setdefault(place.key, []).append(place)
        for key, places in by_key.items():  # keys that only share a digest fall apart here
            for place in places[1:]:
                _add_key(findings, key, places[0], place)
    num_more = repeats.num_surplus - num_listed
    if num_more > 0:
        findings.add(
            "duplicate-key", f"expected every key once, got {num_more:,} more samples whose key another has, not listed", num=num_more
        )


def check_contents(dataset: Dataset, table: DigestTable, findings: Findings) -> None:
    """Add a note for every content that samples of different keys share."""
    repeats = find_repeats(table, findings.limit)
    num_listed = 0
    for found in _resolved(dataset, repeats):
        keys = list(dict.fromkeys(place.key for place in found))
        num_listed += len(found) - 1
        for place in found[1:]:
            if place.key == found[0].key:
                continue  # the same key twice is a finding of its own
            where = f"{found[0].shard.name} at byte {found[0].offset} and, as {place.key!r}, in {place.shard.name} at byte {place.offset}"
            across = "" if place.shard.split == found[0].shard.split else f", in two splits, {found[0].shard.split} and {place.shard.split}"
            detail = f"expected every content under one key, got the same under {len(keys)}{across}: {found[0].key!r} in {where}"
            findings.add("duplicate-content", detail, place.shard.name, place.key, place.offset)
    num_more = repeats.num_surplus - num_listed
    if num_more > 0:
        findings.add(
            "duplicate-content", f"expected every content under one key, got {num_more:,} more samples that repeat another's", num=num_more
        )


def _resolved(dataset: Dataset, repeats: Repeats) -> Iterator[list[Place]]:
    """The places of each listed digest, in dataset order; shards without one are not read again."""
    wanted = {spot for spots in repeats.listed.values() for spot in spots}
    found: dict[Spot, Place] = {}
    for shard in dataset.shards:
        rows = {row for index, row in wanted if index == shard.index}
        if rows:
            found |= {(shard.index, row): place for row, place in _places(dataset, shard, rows)}
    for spots in repeats.listed.values():
        yield [found[spot] for spot in spots if spot in found]


def _places(dataset: Dataset, shard: Shard, rows: Collection[int]) -> Iterator[tuple[int, Place]]:
    for row, sample in enumerate(islice(readable_again(dataset, shard), max(rows) + 1)):
        if row in rows:
            yield row, Place(sample.key, shard, sample.offset, frozenset(sample.values))


def _add_key(findings: Findings, key: str, first: Place, second: Place) -> None:
    where = f"{first.shard.name} at byte {first.offset} and in {second.shard.name} at byte {second.offset}"
    if first.shard == second.shard and not first.fields & second.fields:
        detail = f"expected the members of a sample side by side, got some in {where}"
        findings.add("split-sample", detail, second.shard.name, key, second.offset)
    else:
        findings.add("duplicate-key", f"expected every key once, got it in {where}", second.shard.name, key, second.offset)
