"""Why a figure of a side is missing, from the trials it would be the median of."""

from collections.abc import Sequence
from typing import Any

from shardtools.bench.equality import Proof
from shardtools.bench.measured import Measured
from shardtools.bench.places import NOT_REMOTE, is_remote
from shardtools.bench.report.null_reasons import nulls

_TIMED = ("wait_share", "overhead")
_METRIC = {"wait_share": "shares.wait", "overhead.timers_share": "timers_share"}
"""What trials call it, where that is another name."""


def side_reasons(measured: Measured, side: int, figures: dict[str, Any], proof: Proof) -> list[dict[str, str]]:
    """``{metric, reason}`` of each None among a side's figures, by its exact place in the report."""
    return [{"metric": f"sides[{side}].{name}", "reason": _reason(measured, side, name, proof)} for name in nulls(figures)]


def _reason(measured: Measured, side: int, name: str, proof: Proof) -> str:
    if name == "tokens_per_s" and proof.num_tokens is None:
        return "samples are no rows of tokens"
    if name == "fetched" and not is_remote(measured.layouts[side].uri):
        return NOT_REMOTE
    is_timed = name.partition(".")[0] in _TIMED
    results = measured.of(side, is_timeline=is_timed)
    if not results:
        return _failure(measured, side, is_timed)
    metric = _METRIC.get(name, name)
    told = _told([entry for result in results for entry in result.not_measured], metric)
    return told or _failure(measured, side, is_timed=False)


def _told(entries: Sequence[dict[str, str]], metric: str) -> str | None:
    """Trials name a metric alone, with its part, or in its place."""
    wanted = (metric, metric.rpartition(".")[2])
    named = [entry["reason"] for name in wanted for entry in entries if entry["metric"] in (name, f"found.{name}", f"watched.{name}")]
    return named[0] if named else None


def _failure(measured: Measured, side: int, is_timed: bool) -> str:
    """Of a side without a trial of that mode that went well."""
    failed = [trial.result for trial in measured.trials if trial.side == side and trial.result.status != "ok"]
    what = "no trial with timers" if is_timed else "no trial of this side"
    return f"{what} went well: {failed[0].status}: {failed[0].message}" if failed else f"{what} was run"
