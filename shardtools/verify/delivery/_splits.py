"""Training reads one split at a time: each is delivered by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from shardtools.datasets import Dataset, only_split
from shardtools.digests import DigestTable, together
from shardtools.duplicates import DIGEST_BYTES
from shardtools.errors import UsageError
from shardtools.verify.findings import Findings
from shardtools.verify.options import DeliveryOptions
from shardtools.verify.stored import RECORD_BYTES, Proof, Stored

Check = Callable[[Stored, DeliveryOptions, Findings], Proof]


def check_splits(check: Check, stored: Stored, options: DeliveryOptions, findings: Findings) -> Proof:
    """What a check comes to, of each split that has samples; of all where there are no splits."""
    splits = splits_of(stored.dataset)
    if not splits:
        return check(stored, options, findings)
    proved: list[str] = []
    not_proved: list[str] = []
    for split in splits:
        own = Findings(findings.limit)
        with _part(stored, split, options.is_live) as part:
            proof = check(part, options, own)
        findings.extend(replace(found, detail=f"in the split {split}: {found.detail}") for found in own.all())
        proved += [f"Split {split}: {sentence}" for sentence in proof.proved]
        not_proved += proof.not_proved
    return Proof(tuple(proved), tuple(dict.fromkeys(not_proved)))


def refuse_several(options: DeliveryOptions, dataset: Dataset) -> None:
    """Raises UsageError for the user's own reader of a dataset with splits: nobody knows which of them it reads."""
    splits = splits_of(dataset)
    if options.factory is not None and splits:
        place = f"{dataset.uri}/{splits[0]}" if dataset.format_name == "mds" else f"'{dataset.uri}/{splits[0]}-*.tar'"
        raise UsageError(f"expected one split for --dataset, got a dataset of {', '.join(splits)}; verify one of them, such as {place}")


def splits_of(dataset: Dataset) -> list[str]:
    """Those with shards, as its manifest has them."""
    return [] if dataset.manifest is None else list(dict.fromkeys(shard.split for shard in dataset.shards if shard.split))


@contextmanager
def _part(stored: Stored, split: str, needs_keys: bool) -> Iterator[Stored]:
    """What is stored of one split; its keys only where a reader runs."""
    dataset = only_split(stored.dataset, split)
    counts = tuple(count for shard, count in zip(stored.dataset.shards, stored.counts, strict=True) if shard.split == split)
    keys = DigestTable(RECORD_BYTES)
    try:
        for (records,) in together([stored.keys]) if needs_keys else ():
            shards = records[:, DIGEST_BYTES : DIGEST_BYTES + 4].copy().view("<u4").ravel()
            keys.add(records[np.isin(shards, [shard.index for shard in dataset.shards])].tobytes())
        yield Stored(dataset, counts, keys)
    finally:
        keys.close()
