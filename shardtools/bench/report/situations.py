"""What is at hand of each side of a bench, for the words of its verdict."""

import os
from collections.abc import Mapping
from typing import Any

from shardtools.bench.measured import Measured
from shardtools.bench.places import files_of
from shardtools.bench.report.side_figures import name_of
from shardtools.bench.report.verdict_words import Situation
from shardtools.bench.spec import Layout
from shardtools.datasets import open_dataset
from shardtools.errors import ShardtoolsError


def situation_of(measured: Measured, side: int, ledger: Mapping[str, Any], is_noisy: bool, knee_workers: int | None = None) -> Situation:
    """Of one side. ``ledger``: the environment; ``knee_workers``: of the search, where that side was searched."""
    layout, results = measured.layouts[side], measured.of(side, is_timeline=False)
    ratio, shards_uri = _shards_over(measured, side)
    return Situation(
        name_of(measured, side),
        layout,
        measured.workload,
        measured.request.settings,
        measured.request.consumer,
        ledger,
        batch=results[0].found["batch"] if results else {},
        num_shards=num_shards(layout),
        data_bytes=_data_bytes(layout.uri),
        shards_over_this=ratio,
        shards_uri=shards_uri,
        knee_workers=knee_workers,
        min_seconds=measured.request.min_seconds,
        is_noisy=is_noisy,
    )


def _shards_over(measured: Measured, side: int) -> tuple[tuple[float, float] | None, str | None]:
    """Of the shards that gained most over this side: the interval, and where they lie.

    Where only one of the two read its data again, from memory, that they gain is not sure.
    """
    found = []
    for one, other, compared in measured.comparisons:
        if compared.ci is None or side not in (one, other):
            continue
        shards = measured.layouts[other if side == one else one]
        if shards.kind in ("wds", "mds"):
            low, high = compared.ci if side == one else (1 / compared.ci[1], 1 / compared.ci[0])
            is_even = _is_looped(measured, one) == _is_looped(measured, other)
            found.append(((low if is_even else min(low, 1.0), high), shards.uri))
    return max(found, default=(None, None))


def _is_looped(measured: Measured, side: int) -> bool:
    return any(result.found["window"]["is_looped"] for result in measured.of(side, is_timeline=False))


def num_shards(layout: Layout) -> int | None:
    """None of files and lines, and where it cannot be told."""
    if layout.kind not in ("wds", "mds"):
        return None
    try:
        return len(open_dataset(layout.uri).shards)
    except ShardtoolsError:
        return None


def _data_bytes(uri: str) -> int | None:
    """None where files lie elsewhere, or have gone."""
    try:
        return sum(os.stat(path).st_size for path in files_of(uri)) or None
    except (OSError, ShardtoolsError):
        return None
