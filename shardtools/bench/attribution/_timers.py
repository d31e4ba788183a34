"""What a trial with timers tells: shares of the workers' time. They order and corroborate; only reading and parsing, which nothing
takes away, are judged by them."""

from dataclasses import dataclass
from typing import Any

from shardtools.bench.trial import TrialResult

_MOST = 0.98
_BLOCKED = 0.5


@dataclass(frozen=True)
class Timed:
    """Of the time of all workers in the window, 0 to 1."""

    shares: dict[str, float]
    blocked: dict[str, float]
    """Of the workers' time, too: in the stage, and not on a processor."""
    floor_share: float | None
    """Of a step: to receive a batch that lies ready."""

    @property
    def utilisation(self) -> float:
        """Of the workers, by stages that are timed."""
        return min(1.0, sum(self.shares.values()))

    @property
    def most(self) -> dict[str, float]:
        """The most that each stage may have taken. Sending batches has no timer: it may have taken all that no stage did."""
        return {**self.shares, "transfer": 1 - self.utilisation}

    def largest(self, without: str) -> str | None:
        """The stage that takes most of the time, but that one."""
        left = {name: share for name, share in self.shares.items() if name != without and share > 0}
        return max(left, key=lambda name: left[name], default=None)


@dataclass(frozen=True)
class Reader:
    """Opening, reading and parsing as far as a warm page cache does not take it away."""

    share: float
    parse_share: float
    read_share: float
    blocked_share: float
    """Of ``share``."""

    @property
    def ratio(self) -> float:
        """What the loader would gain without it, if workers are what limits it."""
        return 1 / (1 - min(_MOST, self.share))

    @property
    def is_waiting(self) -> bool:
        return self.blocked_share > _BLOCKED

    def values(self) -> dict[str, Any]:
        names = ("share", "parse_share", "read_share", "blocked_share", "ratio")
        return {name: getattr(self, name) for name in names}


def timed(result: TrialResult | None) -> Timed | None:
    """None where there is no such trial, or it had no timers."""
    stages = result.found.get("stages") if result is not None and result.status == "ok" else None
    if result is None or not stages:
        return None
    window_s = result.found["window"]["wall_s"] * max(1, result.spec.settings.num_workers)
    floor, step = result.found.get("ipc_floor_ms"), result.found.get("step_ms")
    return Timed(
        {name: stage["wall_s"] / window_s for name, stage in stages.items()},
        {name: stage["blocked_s"] / window_s for name, stage in stages.items()},
        floor / step if floor is not None and step else None,
    )


def reader_of(found: Timed | None, storage_ratio: float | None) -> Reader | None:
    """``storage_ratio``: what a warm cache gained; None where that was not measured. What it takes away is storage, the rest is here."""
    if found is None:
        return None
    parse, storage = found.shares.get("parse", 0.0), found.shares.get("storage", 0.0)
    removed = 0.0 if storage_ratio is None else max(0.0, 1 - 1 / storage_ratio)
    read = max(0.0, storage - removed)
    share = parse + read
    kept = read / storage if storage else 0.0
    blocked = found.blocked.get("parse", 0.0) + max(0.0, found.blocked.get("storage", 0.0) - removed) * (kept > 0)
    return Reader(share, parse, read, min(1.0, blocked / share) if share else 0.0)
