"""Keys that occur twice, and keys that are one where names fold, over the whole dataset in bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from shardtools import keys
from shardtools.datasets import Dataset
from shardtools.digests import DigestTable, Records, as_digests, together
from shardtools.duplicates import DIGEST_BYTES, key_digest
from shardtools.verify.stored import places
from shardtools.verify.targets._complaints import NUM_EXAMPLES, At

_ADDED_AT_A_TIME = 1 << 12


@dataclass
class _Repeats:
    count: int = 0
    """Samples beyond the first of each key."""
    digests: list[bytes] = field(default_factory=list)
    """Of the keys of a few."""


class KeyTable:
    """Memory and disk: those of a DigestTable of 32 bytes a sample."""

    def __init__(self) -> None:
        self._table = DigestTable(2 * DIGEST_BYTES)
        self._pending: list[bytes] = []
        self._last: str | None = None

    def see(self, key: str) -> None:
        """A member of the sample ``key``, in order: neighbours of one key are one sample."""
        if key == self._last:
            return
        self._last = key
        name = key.encode("utf-8", "surrogateescape")
        digest = key_digest(name)
        folded = keys.fold_key(name)
        self._pending += (digest if folded is None else key_digest(folded), digest)
        if len(self._pending) > _ADDED_AT_A_TIME:
            self._flush()

    def end_shard(self) -> None:
        self._last = None

    def close(self) -> None:
        self._table.close()

    def repeats(self) -> tuple[_Repeats, _Repeats]:
        """Samples whose key another has; keys that differ from another by case or Unicode form alone."""
        self._flush()
        twice, twins = _Repeats(), _Repeats()
        for (records,) in together([self._table]):
            for group in _groups(records):
                distinct = list(dict.fromkeys(digest.tobytes() for digest in group))
                for repeats, count in ((twice, len(group) - len(distinct)), (twins, len(distinct) - 1)):
                    repeats.count += count
                    if count and len(repeats.digests) < NUM_EXAMPLES:
                        repeats.digests += distinct[:NUM_EXAMPLES]
        return twice, twins

    def _flush(self) -> None:
        self._table.add(b"".join(self._pending))
        self._pending = []


def examples(dataset: Dataset, repeats: _Repeats) -> list[At]:
    """Where some of them lie. Reads the dataset once more."""
    found = [At(place.shard.name, place.key, place.offset, place.key) for place in places(dataset, repeats.digests)]
    return sorted(found, key=lambda at: str(at.key).casefold())[:NUM_EXAMPLES]


def _groups(records: Records) -> Iterator[Records]:
    """[samples, 16]: the exact digests of samples that share the folded one, for each that several have."""
    folded = as_digests(records)
    is_same = np.zeros(len(folded) + 1, bool)
    is_same[1:-1] = folded[1:] == folded[:-1]
    begins = np.flatnonzero(~is_same[:-1] & is_same[1:])
    for begin in begins.tolist():
        end = begin + 1
        while is_same[end]:
            end += 1
        yield records[begin:end, DIGEST_BYTES:]
