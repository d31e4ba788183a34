"""Starts a trial's process, prepares caches when it is ready, watches it, ends it, and leaves nothing of it behind."""

import time
from collections.abc import Callable
from typing import Any

from shardtools.bench.counters import host
from shardtools.bench.not_measured import Unknown
from shardtools.bench.processes.folders import private_folder
from shardtools.bench.spec import TrialSpec
from shardtools.bench.trial._process import TrialProcess
from shardtools.bench.trial._watch import Watch
from shardtools.bench.trial._words import End, is_lost, judged
from shardtools.bench.trial.result import TrialResult
from shardtools.signals import ends_tidily

_POLL_SECONDS = 0.02
_IMPORT_SECONDS = 120.0
"""To import torch and a reader; the trial's own time begins after."""
_END_SECONDS = 10.0
"""To end once the result is written."""
_TERM_SECONDS = 2.0
_LOST_SECONDS = 2.0
"""To end by itself where it cannot go on."""


def run_trial(spec: TrialSpec, prepare: Callable[[], None] | None = None, is_watched: bool = True) -> TrialResult:
    """Run a trial in a fresh process, in a group of its own, and see all of it gone, also when this call is interrupted.

    ``prepare`` is called when the process has imported all it needs and no process has any of the data open: the place to empty or warm
    caches. A batch was made before, to know what the loader will take.
    ``is_watched``: counters are sampled from this process meanwhile.

    A trial that fails is a result with a status. Raises only what ``prepare`` raises and what interrupts this call.
    """
    with ends_tidily(), private_folder() as folder, TrialProcess(spec, folder) as process:
        return _Supervision(spec, process, Watch(spec, process.pid) if is_watched else None, prepare).run()


class _Supervision:
    def __init__(self, spec: TrialSpec, process: TrialProcess, watch: Watch | None, prepare: Callable[[], None] | None) -> None:
        self._spec = spec
        self._process = process
        self._watch = watch
        self._prepare = prepare
        self._deadline = time.monotonic() + _IMPORT_SECONDS
        self._limit = _IMPORT_SECONDS
        self._shm_share: float | None = None
        self._has_result = False

    def run(self) -> TrialResult:
        try:
            exit_code = self._until_end()
        finally:
            if self._watch is not None:
                self._watch.stop()
        was_complete = exit_code is not None
        self._process.close(grace_seconds=0.0 if was_complete else _TERM_SECONDS)
        return self._result(exit_code)

    def _until_end(self) -> int | None:
        """The exit code; None where time was up, or would be: what is lost never comes."""
        while True:
            for event in self._process.events(_POLL_SECONDS):
                self._heard(event)
            code = self._process.exit_code()
            if code is not None:
                return code
            share = _shm_share()
            self._shm_share = share if share is None else max(share, self._shm_share or 0.0)
            if not self._has_result and self._process.has_result:
                self._has_result = True
                self._deadline = min(self._deadline, time.monotonic() + _END_SECONDS)
            if self._process.listen() and is_lost(self._process.said):
                self._deadline = min(self._deadline, time.monotonic() + _LOST_SECONDS)
            if time.monotonic() > self._deadline:
                return None

    def _heard(self, event: dict[str, Any]) -> None:
        self._process.remember_shared_memory()
        if event["event"] == "ready":
            if self._prepare is not None:
                self._prepare()
            if self._watch is not None:
                self._watch.start()
            self._limit = self._spec.timeout_seconds
            self._deadline = time.monotonic() + self._limit
            self._process.go_on()
        elif event["event"] == "measured":
            if self._watch is not None:
                self._watch.finish(event["begin"], event["end"], event["gpu_uuid"])
            self._process.go_on()

    def _result(self, exit_code: int | None) -> TrialResult:
        written = self._process.written
        said = self._process.said
        end = End(exit_code, written.get("status"), written.get("message", ""), said, self._limit, self._shm_share)
        status, message = judged(end)
        found: dict[str, Any] = written.get("found", {})
        watched = self._watch.found if self._watch is not None and status == "ok" else {}
        not_measured = [*found.pop("not_measured", []), *watched.pop("not_measured", [])]
        if status != "ok":
            not_measured = [{"metric": "*", "reason": message}]
        elif self._watch is None:
            not_measured += [{"metric": name, "reason": "the trial was not watched"} for name in ("counters", "gpus", "peaks")]
        if "peaks" in watched:
            watched["peaks"] |= found.pop("device_peaks", {})
        return TrialResult(self._spec, status, message, found, watched, not_measured, self._process.leftovers, said)


def _shm_share() -> float | None:
    """How full shared memory is, 0 to 1; None where there is none."""
    try:
        return host.shared_memory().used_share
    except Unknown:
        return None
