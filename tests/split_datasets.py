"""Datasets with splits, and the rule by which samples come to them, reckoned once more by hand."""

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from shardtools import plugins
from shardtools.build.order import Order
from shardtools.build.run import Result, RunOptions, build
from shardtools.build.select_order import selection_of
from shardtools.manifest import Manifest
from shardtools.plan import ShardLimit
from shardtools.sources.files import Files
from shardtools.sources.jsonl import Jsonl

SHARES = "train=0.6,val=0.2,test=0.2"


def expected_split(name: str, shares: str = SHARES) -> str:
    """The rule as the README has it: the first 64 bits of the SHA-256 of the name, as a number below one, against the shares."""
    number = Fraction(int(hashlib.sha256(name.encode()).hexdigest()[:16], 16), 2**64)
    total = Fraction(0)
    for pair in shares.split(","):
        split, _, share = pair.partition("=")
        total += Fraction(share)
        if number < total:
            return split
    raise AssertionError(shares)


def build_splits(
    source: Path | str,
    out: Path | str,
    to: str = "wds",
    *,
    shares: str = SHARES,
    shard_samples: int = 4,
    sidecars: Sequence[str] = (),
    overwrite: bool = False,
    group_by: str | None = None,
    **options: Any,
) -> Result:
    """Pack files, or JSON lines where the source is such a file, into a dataset with splits; other options are the format's."""
    order = Order(
        Jsonl() if str(source).endswith(".jsonl") else Files(group="last-dot"),
        plugins.load("formats", to)(**options),
        ShardLimit(num_samples=shard_samples),
        sidecars=tuple(sorted(sidecars)),
        selection=selection_of({"split": shares} | ({} if group_by is None else {"group_by": group_by})),
    )
    return build([str(source)], str(out), order, RunOptions(overwrite=overwrite))


def pack_splits(source: Path | str, out: Path | str, to: str = "wds", **options: Any) -> Manifest:
    """The manifest of what ``build_splits`` makes."""
    return build_splits(source, out, to, **options).manifest
