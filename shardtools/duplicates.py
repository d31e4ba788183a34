"""Proof that no key occurs twice, from 16-byte digests, in memory that does not grow with the dataset."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import xxhash

from shardtools.keys import folded_keys

DIGEST_BYTES = 16
# About 120 bytes of memory for each digest that is looked at together.
_BUCKET_DIGESTS = 1 << 20


key_digest: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
"""The 16-byte XXH3-128 digest of a key; keys that share one are compared themselves before anything is refused."""


@dataclass
class KeyDigests:
    """Digests of stored keys as they are, and of those that a case-folding file system would change, as it would change them."""

    plain: list[bytes] = field(default_factory=list)
    folded: list[bytes] = field(default_factory=list)

    def add(self, keys: Sequence[bytes]) -> None:
        self.plain += map(key_digest, keys)
        self.folded += map(key_digest, folded_keys(keys))


class DigestRun(Sequence[bytes]):
    """Sorted digests, as one bytes object."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, digests: list[bytes]) -> "DigestRun":
        return cls(b"".join(sorted(digests)))

    def __len__(self) -> int:
        return len(self.data) // DIGEST_BYTES

    def __getitem__(self, i):  # type: ignore[no-untyped-def]
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self.data[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES]

    def between(self, low: bytes, high: bytes | None) -> list[bytes]:
        """The digests from ``low`` up to ``high``, not included; None: to the end."""
        begin = bisect_left(self, low)
        end = len(self) if high is None else bisect_left(self, high)
        data = self.data
        return [data[i : i + DIGEST_BYTES] for i in range(begin * DIGEST_BYTES, end * DIGEST_BYTES, DIGEST_BYTES)]


def repeats(runs: Sequence[DigestRun]) -> Iterator[bytes]:
    """Each digest that occurs more than once over all runs, in order."""
    for together in _buckets(runs):
        if len(set(together)) < len(together):
            yield from sorted(digest for digest, count in Counter(together).items() if count > 1)


def num_twins(keys: Sequence[DigestRun], folded: Sequence[DigestRun]) -> int:
    """How many folded keys equal another key or another folded key."""
    if not any(len(run) for run in folded):
        return 0
    count = 0
    num_buckets = _num_buckets([*keys, *folded])
    for plain, folds in zip(_buckets(keys, num_buckets), _buckets(folded, num_buckets), strict=True):
        known = set(plain)
        for digest in folds:
            count += digest in known
            known.add(digest)
    return count


def _num_buckets(runs: Sequence[DigestRun]) -> int:
    return min(1 + sum(map(len, runs)) // _BUCKET_DIGESTS, 1 << 16)


def _buckets(runs: Sequence[DigestRun], num_buckets: int | None = None) -> Iterator[list[bytes]]:
    """All digests, in slices of the digest space small enough to hold in memory."""
    count = num_buckets or _num_buckets(runs)
    bounds = [(i * (1 << 16) // count).to_bytes(2, "big") for i in range(count)]
    for low, high in zip(bounds, [*bounds[1:], None], strict=True):
        yield [digest for run in runs for digest in run.between(low, high)]
