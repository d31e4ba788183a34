"""Trials that ended badly, as verdicts."""

from collections.abc import Sequence

from shardtools.bench.attribution.result import Confidence, VerdictClass
from shardtools.bench.trial import TrialResult

_OF_STATUS: dict[str, VerdictClass] = {"oom_shm": "shared_memory", "fd": "fd_limit"}
_OF_RESOURCE: dict[str | None, VerdictClass] = {"shm": "shared_memory", "fds": "fd_limit"}


def decisive(results: Sequence[TrialResult]) -> TrialResult | None:
    """The one that tells what is wrong before anything else is asked: it ran out of something, or none ended well."""
    ran_out = next((one for one in results if one.status in _OF_STATUS), None)
    if ran_out is not None or any(one.status == "ok" for one in results):
        return ran_out
    return results[0] if results else None


def status_verdict(result: TrialResult) -> tuple[VerdictClass, Confidence]:
    """Of a trial that did not end well. One that was refused would have run out: that was foreseen, not seen."""
    if result.status in _OF_STATUS:
        return _OF_STATUS[result.status], "high"
    foreseen = _OF_RESOURCE.get(result.found.get("exceeds"))
    if result.status == "refused" and foreseen is not None:
        return foreseen, "medium"
    return "inconclusive", "inconclusive"
