"""What the strict parse found in a dataset: how many samples lie where, and the digests of their keys."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shardtools.datasets import Dataset, Shard
from shardtools.digests import DigestTable
from shardtools.duplicates import key_digest
from shardtools.errors import ShardtoolsError
from shardtools.formats import StoredSample

RECORD_BYTES = 24
"""Digest, u32 index of the shard, u32 position of the sample in it; little-endian."""


PIECE_BYTES = 40
"""Digest of a document's key, then u64 offset, length and total of one piece of it in tokens; little-endian."""


@dataclass(frozen=True)
class Stored:
    """The samples that could be read. Samples of datasets without keys are named ``{shard:05d}/{row:08d}``."""

    dataset: Dataset
    counts: tuple[int, ...]
    """Samples of each shard of ``dataset.shards``, in their order."""
    keys: DigestTable
    """A record of ``RECORD_BYTES`` for each sample, in no order: ``digest_of`` its key, then u32 shard, u32 position in it."""

    @property
    def num_samples(self) -> int:
        return sum(self.counts)


class Place(NamedTuple):
    """Where one sample lies."""

    key: str
    shard: Shard
    offset: int
    """Byte of the uncompressed shard."""
    fields: frozenset[str]
    previous: str | None = None
    """Key of the sample before it in the shard, None for the first."""


class Proof(NamedTuple):
    """What a check came to besides findings, in sentences for people."""

    proved: tuple[str, ...] = ()
    """Complete sentences."""
    not_proved: tuple[str, ...] = ()
    """Ends of a sentence that begins with ``Not looked at:``."""


def digest_of(key: str) -> bytes:
    """The 16-byte digest of a key as the dataset has it."""
    return key_digest(key.encode("utf-8", "surrogateescape"))


def places(dataset: Dataset, digests: Collection[bytes]) -> Iterator[Place]:
    """Every sample whose key has one of the digests, in dataset order. Reads all shards, and passes over what cannot be read."""
    wanted = frozenset(digests)
    for shard in dataset.shards if wanted else ():
        previous = None
        for sample in readable_again(dataset, shard):
            if digest_of(sample.key) in wanted:
                yield Place(sample.key, shard, sample.offset, frozenset(sample.values), previous)
            previous = sample.key


def readable_again(dataset: Dataset, shard: Shard) -> Iterator[StoredSample]:
    """The samples of a shard that was checked, as far as they can be read: what keeps others from it was reported then."""
    try:
        raw = dataset.unpacked(shard, dataset.stored(shard))
    except ShardtoolsError:
        return
    yield from dataset.salvaged(shard, raw)
