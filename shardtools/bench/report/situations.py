"""What is at hand of each side of a bench, for the words of its verdict."""

from collections.abc import Mapping
from typing import Any

from shardtools.bench.copies import fetches_anew
from shardtools.bench.measured import Measured
from shardtools.bench.places import stored_bytes
from shardtools.bench.report.ended import ended, fewest_steps
from shardtools.bench.report.side_figures import name_of
from shardtools.bench.report.verdict_words import Situation
from shardtools.bench.spec import Layout
from shardtools.datasets import open_dataset
from shardtools.errors import ShardtoolsError


def situation_of(measured: Measured, side: int, ledger: Mapping[str, Any], is_noisy: bool) -> Situation:
    """Of one side, without what a search found. ``ledger``: the environment."""
    layout = measured.layouts[side]
    ratio, shards_uri = _shards_over(measured, side)
    return Situation(
        name_of(measured, side),
        layout,
        measured.workload,
        measured.request.settings,
        measured.request.consumer,
        ledger,
        batch=_batch(measured, side),
        num_shards=num_shards(layout),
        data_bytes=_data_bytes(layout.uri),
        shards_over_this=ratio,
        shards_uri=shards_uri,
        min_seconds=measured.request.min_seconds,
        is_noisy=is_noisy,
        ended_steps=_ended_steps(measured, side),
    )


def _ended_steps(measured: Measured, side: int) -> tuple[int, int] | None:
    """Of most trials: where the data ended in fewer, another run may have enough."""
    results = measured.of(side, is_timeline=False)
    lacking = ended(results)
    return fewest_steps(lacking) if 2 * len(lacking) > len(results) else None


def _batch(measured: Measured, side: int) -> Mapping[str, Any]:
    """Of a trial that went well; of one that did not, if it came so far as to make one; else empty."""
    others = [trial.result for trial in measured.trials if trial.side == side]
    found = (result.found.get("batch") for result in [*measured.of(side, is_timeline=False), *others])
    return next(filter(None, found), {})


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
    is_looped = any(result.found["window"]["is_looped"] for result in measured.of(side, is_timeline=False))
    return is_looped and not fetches_anew(measured.layouts[side])


def num_shards(layout: Layout) -> int | None:
    """None of files and lines, and where it cannot be told."""
    if layout.kind not in ("wds", "mds"):
        return None
    try:
        return len(open_dataset(layout.uri).shards)
    except ShardtoolsError:
        return None


def _data_bytes(uri: str) -> int | None:
    """None where files have gone, or cannot be listed."""
    try:
        return stored_bytes(uri)
    except (OSError, ShardtoolsError):
        return None
