"""Counters and timers that bear on the loop around the loader: the copy, and what holds loader and training up."""

from collections.abc import Sequence
from typing import Any

from shardtools.bench.attribution._evidence import OF_CEILING, PRESSURE, Told, of_processors
from shardtools.bench.attribution.result import LATE, Fact
from shardtools.bench.trial import TrialResult


def copy_evidence(rates: tuple[float, float], results: Sequence[TrialResult], timeline: TrialResult | None) -> Told:
    """``rates``: on a batch that is on the device, and with its copy. The copy is the limit for sure where it runs near what memory of
    its kind was probed to give, or where tensors could be pinned and are not."""
    resident, copied = rates
    pinning: dict[str, Any] = next((result.found["pinning"] for result in results if result.status == "ok"), {})
    leaves, pinned = pinning.get("num_tensors"), pinning.get("num_pinned")
    is_pageable = bool(leaves) and pinned is not None and pinned < leaves
    reached, ceiling = _gbps(timeline), _ceiling(timeline, is_pageable)
    values = {"H": copied, "G": resident, "exposed_share": 1 - copied / resident, "leaves": leaves, "pinned": pinned}
    is_full = reached is not None and ceiling is not None and reached >= OF_CEILING * ceiling
    return Fact("copy", values | {"GBps": reached, "ceiling_GBps": ceiling}), is_pageable or is_full


def _gbps(timeline: TrialResult | None) -> float | None:
    """Of the copies in the loop, by the device's own clock: 10^9 bytes a second."""
    copies = _steps(timeline).get("h2d_copy_ms")
    if timeline is None or not copies or not copies["mean"]:
        return None
    return float(timeline.found["batch"]["bytes"] / copies["mean"] / 1e6)


def _ceiling(timeline: TrialResult | None, is_pageable: bool) -> float | None:
    found = None if timeline is None else timeline.found.get("h2d_ceilings")
    return None if found is None else float(found["pageable_GBps" if is_pageable else "pinned_GBps"])


def contention_evidence(rates: tuple[float, float], results: Sequence[TrialResult], timeline: TrialResult | None) -> list[Told]:
    """``rates``: of the loop, and the lower one of its parts."""
    waits, launches = _steps(timeline).get("data_wait_ms"), _steps(timeline).get("launch_ms")
    late = waits["p99"] / waits["mean"] if waits and waits["mean"] else None
    settings = None if timeline is None else timeline.spec.settings
    is_late = late is not None and late > LATE
    told: list[Told] = [(Fact("contention", {"F": rates[0], "bound": rates[1], "wait_p99_over_mean": late}), is_late)]
    if is_late and settings is not None and settings.in_order and settings.num_workers > 1:
        told.append((Fact("head_of_line", {"num_workers": settings.num_workers}), False))
    watched = next((result for result in results if result.watched.get("counters")), None)
    if watched is not None:
        told += of_processors(watched.watched["counters"], watched)
        pressure = watched.watched["counters"].get("psi_cpu_share")
        if pressure is not None:
            told.append((Fact("pressure", {"resource": "cpu", "share": pressure}), pressure >= PRESSURE))
    if launches:
        told.append((Fact("launch", {"mean_ms": launches["mean"], "p99_ms": launches["p99"]}), False))
    return told


def _steps(timeline: TrialResult | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if timeline is None or timeline.status != "ok" else timeline.found.get("steps") or {}
    return found
