"""Runs checks one after the other until time is up, and says what came of each."""

import gc
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from _gpu_loops import Outcome
from _gpu_rig import NotRunError, Rig

from shardtools.bench.user_faults import sentence_of

Check = Callable[[Rig], Outcome]
SCHEMA = "shardtools.gpu_check/1"
NOT_REACHED = "time"
_WIDTH = 80
EXIT_PASSED, EXIT_FAILED, EXIT_NO_CUDA, EXIT_NOT_ALL = 0, 1, 3, 4


@dataclass
class Deadline:
    """Seconds from now on."""

    seconds: float
    now: Callable[[], float] = time.monotonic
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.now()

    @property
    def left(self) -> float:
        return self.seconds - (self.now() - self._began)


class Results:
    """One entry a check, in order; those not reached are ``not run``. Read by a second thread when a check does not end."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._lock = threading.Lock()
        self._entries = {name: _entry(check, "not run", reason=NOT_REACHED) for name, check in checks.items()}

    def put(self, name: str, **found: Any) -> None:
        with self._lock:
            self._entries[name] |= found

    def listed(self) -> list[dict[str, Any]]:
        with self._lock:
            return [{"name": name, **entry} for name, entry in self._entries.items()]


def _entry(check: Check, verdict: str, reason: str | None = None) -> dict[str, Any]:
    what = " ".join((check.__doc__ or "").split())
    return {"what": what, "verdict": verdict, "reason": reason, "expected": None, "got": None, "seconds": None}


def run_checks(checks: Mapping[str, Check], rig: Rig, results: Results, deadline: Deadline, needed_seconds: float) -> None:
    """A check is begun where at least so much time is left."""
    for name, check in checks.items():
        if deadline.left < needed_seconds:
            return
        began = deadline.left
        results.put(name, verdict="failed", reason="it did not end in time")
        found = _checked(check, rig)
        gc.collect()  # a loader that lingers would be ended by the workers of the next one, which may not
        results.put(name, **found, seconds=round(began - deadline.left, 2))


def _checked(check: Check, rig: Rig) -> dict[str, Any]:
    try:
        outcome = check(rig)
    except NotRunError as reason:
        return {"verdict": "not run", "reason": str(reason)}
    except ModuleNotFoundError as error:
        return {"verdict": "not run", "reason": f"{error.name} is not installed"}
    except Exception as error:
        return {"verdict": "failed", "reason": sentence_of(error)}
    verdict = "passed" if outcome.is_right else "failed"
    return {"verdict": verdict, "reason": None, "expected": outcome.expected, "got": outcome.got}


def counts(entries: list[dict[str, Any]]) -> dict[str, int]:
    return {verdict: sum(entry["verdict"] == verdict for entry in entries) for verdict in ("passed", "failed", "not run")}


def exit_code(entries: list[dict[str, Any]]) -> int:
    """0 where all passed, 1 where one failed, 4 where none failed and some were not run."""
    found = counts(entries)
    if found["failed"]:
        return EXIT_FAILED
    return EXIT_NOT_ALL if found["not run"] else EXIT_PASSED


def table(entries: list[dict[str, Any]]) -> str:
    lines = []
    for entry in entries:
        spent = "" if entry["seconds"] is None else f"{entry['seconds']:6.1f} s"
        lines.append(f"{entry['verdict']:8} {entry['name']:20} {spent}".rstrip())
        if entry["reason"]:
            lines += _wrapped(entry["reason"])
        if entry["verdict"] == "failed" and entry["expected"]:
            lines += _wrapped(f"expected: {entry['expected']}") + _wrapped(f"got: {_short(entry['got'])}")
    found = counts(entries)
    return "\n".join([*lines, ", ".join(f"{number} {verdict}" for verdict, number in found.items())])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=" " * 9, subsequent_indent=" " * 9)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} ({_short(part)})" if isinstance(part, dict) else f"{name} {_short(part)}" for name, part in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
