"""The samples of a published dataset as digests, a shard at a time, however they are to be compared."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import xxhash

from shardtools.datasets import Dataset, Shard
from shardtools.engines import Report
from shardtools.errors import DamagedShardError, ShardtoolsError
from shardtools.formats import StoredSample
from shardtools.manifest import OFFSETS_NAME
from shardtools.plan import Recipe
from shardtools.verify._offsets import OFFSET_BYTES, offset_places
from shardtools.verify.against._replay import ShardDigest
from shardtools.verify.against._samples import MOST_OF_A_KEY, Found, Value, in_split, shown_value
from shardtools.verify.stored import Stored, digest_of

Content = Callable[[memoryview, StoredSample], bytes]
"""The 16-byte digest of a sample, from the unpacked shard and what was parsed of it."""


class Reading(Protocol):
    """What counts as a sample's content. Picklable."""

    def contents(self, dataset: Dataset, shard: Shard) -> Content:
        """The digest of each sample of a shard."""

    def values(self, dataset: Dataset, shard: Shard, sample: StoredSample) -> dict[str, Value]:
        """A sample's fields for people, each with the digest that is compared."""


@dataclass(frozen=True)
class AsStored:
    """The bytes that pack would write for the sample, headers and padding included, and the split it is in."""

    recipe: Recipe

    def contents(self, dataset: Dataset, shard: Shard) -> Content:
        encoder = self.recipe.format.encoder(self.recipe.fields, self.recipe.limit.num_bytes)
        key_name = self.recipe.format.key_name
        # What a sample costs in MDS is its row and its entry in the table of offsets.
        table_bytes = 0 if self.recipe.format.index_name is None else 4

        def content(raw: memoryview, sample: StoredSample) -> bytes:
            lengths = list(map(len, sample.values.values()))
            key_bytes = 0 if key_name is None else len(sample.values.get(key_name, b""))
            num_bytes = encoder.planned_cost(key_bytes, list(sample.values), lengths) - table_bytes
            return in_split(xxhash.xxh3_128_digest(raw[sample.offset : sample.offset + num_bytes]), shard.split)

        return content

    def values(self, dataset: Dataset, shard: Shard, sample: StoredSample) -> dict[str, Value]:
        fields = {name: bytes(value) for name, value in sample.values.items() if name != shard.format.key_name}
        return {name: Value.of(data, shown_value(shard.format, dataset.field(shard, name), data)) for name, data in fields.items()}


class ShardSpan(NamedTuple):
    """Where the samples of a shard lie by the offsets file; -1 where there is none to say."""

    shard: Shard
    num_samples: int
    begin: int
    end: int


def spans(stored: Stored) -> list[ShardSpan]:
    """Every shard, with the place of its samples in the unpacked bytes as far as it can be relied on.

    That is where the offsets file is there and of the right length, and the strict parse could read every sample of the shard.
    """
    dataset = stored.dataset
    counts = [shard.num_samples or 0 for shard in dataset.shards]
    begins = [begin // OFFSET_BYTES for begin in offset_places(counts)]
    try:
        offsets = np.frombuffer(dataset.stored_file(OFFSETS_NAME), "<u8")
    except (ShardtoolsError, ValueError):
        offsets = np.zeros(0, "<u8")
    if len(offsets) != begins[-1]:
        return [ShardSpan(shard, count, -1, -1) for shard, count in zip(dataset.shards, counts, strict=True)]
    found = []
    for shard, count, num_readable, first in zip(dataset.shards, counts, stored.counts, begins, strict=False):
        span = (int(offsets[first]), int(offsets[first + count])) if num_readable == count else (-1, -1)
        found.append(ShardSpan(shard, count, *span))
    return found


@dataclass(frozen=True)
class DigestShards:
    """The digest of all samples of a shard as they lie there; None for a shard that cannot be read so."""

    dataset: Dataset

    def __call__(self, item: ShardSpan, report: Report) -> ShardDigest | None:
        try:
            raw = self.dataset.unpacked(item.shard, self.dataset.stored(item.shard))
        except ShardtoolsError:
            return None
        if not 0 <= item.begin <= item.end <= len(raw):
            return None
        return ShardDigest(item.num_samples, xxhash.xxh3_128_digest(raw[item.begin : item.end]))


class ShardRecords(NamedTuple):
    """What one shard holds."""

    num_samples: int
    records: bytes
    """Key and content digest of each sample; without keys, the content digest twice."""
    fault: str | None
    """Why not every sample could be read."""


@dataclass(frozen=True)
class DigestSamples:
    """Digests every sample of a shard that can be read."""

    dataset: Dataset
    reading: Reading
    has_keys: bool

    def __call__(self, item: Shard, report: Report) -> ShardRecords:
        content = self.reading.contents(self.dataset, item)
        records: list[bytes] = []
        faults: list[str] = []
        num_samples = 0
        for raw, sample in readable(self.dataset, item, faults):
            digest = content(raw, sample)
            records += (digest_of(sample.key) if self.has_keys else digest, digest)
            num_samples += 1
        return ShardRecords(num_samples, b"".join(records), faults[0] if faults else None)


@dataclass(frozen=True)
class FindStored:
    """Names the samples of a shard that have one of the wanted digests."""

    dataset: Dataset
    reading: Reading
    has_keys: bool
    wanted: frozenset[bytes]

    def __call__(self, item: Shard, report: Report) -> list[Found]:
        content = self.reading.contents(self.dataset, item)
        found: list[Found] = []
        counts: Counter[bytes] = Counter()
        for raw, sample in readable(self.dataset, item, []):
            digest = digest_of(sample.key) if self.has_keys else content(raw, sample)
            if digest in self.wanted and counts[digest] < MOST_OF_A_KEY:
                counts[digest] += 1
                values = self.reading.values(self.dataset, item, sample)
                found.append(Found(digest, content(raw, sample), sample.key, values, None, item.name, sample.offset, item.split))
        return found


def readable(dataset: Dataset, shard: Shard, faults: list[str]) -> Iterator[tuple[memoryview, StoredSample]]:
    """Every sample of a shard that can be read, with the unpacked shard; ``faults`` gets why others cannot."""
    try:
        raw = dataset.unpacked(shard, dataset.stored(shard))
    except ShardtoolsError as error:
        faults.append(str(error))
        return
    last = -1
    try:
        for sample in dataset.named(shard, shard.format.stored_samples(raw)):
            yield raw, sample
            last = sample.offset
        return
    except DamagedShardError as damage:
        faults.append(str(damage))
    # What comes after the damage, as far as it can be read: this look takes longer.
    for sample in dataset.salvaged(shard, raw):
        if sample.offset > last:
            yield raw, sample
