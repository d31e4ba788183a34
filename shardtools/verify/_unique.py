"""That no key occurs twice over the whole dataset; both places of one that does are named."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shardtools.datasets import Dataset, Shard
from shardtools.duplicates import key_digest, repeats
from shardtools.errors import ShardtoolsError
from shardtools.formats import Audit, Fault
from shardtools.verify._shards import ShardReport
from shardtools.verify.findings import Findings


class _Place(NamedTuple):
    key: str
    shard: Shard
    offset: int
    fields: frozenset[str]


def check_unique(dataset: Dataset, reports: Sequence[ShardReport], findings: Findings) -> None:
    """Add a finding for every key that more than one sample has. Reads shards again only where there is one.

    Memory: 16 bytes a key, and 120 for each of the about a million keys compared at a time.
    """
    repeated = repeats([report.keys for report in reports])
    digests = set(islice(repeated, findings.limit))
    if not digests:
        return
    places: dict[str, list[_Place]] = {}
    for report in reports:
        if any(digest in report.keys.between(digest, None)[:1] for digest in digests):
            for place in _places(dataset, report.shard, digests):
                places.setdefault(place.key, []).append(place)
    for key, found in places.items():
        for place in found[1:]:
            _add(findings, key, found[0], place)
    num_more = sum(1 for _ in repeated)
    if num_more:
        findings.add("duplicate-key", f"expected every key once, got {num_more:,} more keys that occur twice, not listed")


def _places(dataset: Dataset, shard: Shard, digests: set[bytes]) -> Iterator[_Place]:
    try:
        raw = dataset.unpacked(shard, dataset.stored(shard))
    except ShardtoolsError:
        return  # it was readable when it was checked; that it no longer is shows there
    for sample in dataset.named(shard, shard.format.audit(raw, Audit(_ignore))):
        if key_digest(sample.key.encode("utf-8", "surrogateescape")) in digests:
            yield _Place(sample.key, shard, sample.offset, frozenset(sample.values))


def _ignore(fault: Fault) -> None:
    """Every fault was reported when the shard was checked."""


def _add(findings: Findings, key: str, first: _Place, second: _Place) -> None:
    where = f"{first.shard.name} at byte {first.offset} and in {second.shard.name} at byte {second.offset}"
    if first.shard == second.shard and not first.fields & second.fields:
        detail = f"expected the members of a sample side by side, got some in {where}"
        findings.add("split-sample", detail, second.shard.name, key, second.offset)
    else:
        findings.add("duplicate-key", f"expected every key once, got it in {where}", second.shard.name, key, second.offset)
