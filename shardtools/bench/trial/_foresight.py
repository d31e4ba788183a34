"""What a trial's loader will take, told before its workers start and again from its first batch; and the refusal to go on."""

import os
from typing import Any

from shardtools.bench.counters.process import parse_stat
from shardtools.bench.not_measured import Unknown, read_text
from shardtools.bench.places import stored_bytes
from shardtools.bench.prediction import Batch, Limits, Probe, exceeded, predict, refusal
from shardtools.bench.trial._rehearsal import Rehearsal
from shardtools.bench.trial._running import Running, effective_settings

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class RefusedError(Exception):
    """The trial is not run: it would take more than there is. ``found`` has what was foreseen, and ``exceeds``: which resource."""

    def __init__(self, why: str, found: dict[str, Any]) -> None:
        super().__init__(why)
        self.found = found


class Foresight:
    """Made when the data is open and no worker has started: what there is to take is looked at then."""

    def __init__(self, running: Running, rehearsal: Rehearsal | None) -> None:
        self._running = running
        self._worker_bytes = None if rehearsal is None else rehearsal.worker_bytes
        self._main_bytes = running.reasons.attempt("probe.main_rss_bytes", _resident_bytes)
        self._buffer_bytes = running.reasons.attempt("probe.buffer_bytes_per_worker", lambda: _buffer_bytes(running))
        self._limits = Limits.here().beside(self._main_bytes or 0)
        if rehearsal is not None:
            self.see(rehearsal.batch)

    def see(self, batch: Batch) -> None:
        """A batch, rehearsed or sent. Fills ``batch``, ``probe`` and ``predicted``. Raises RefusedError, unless the trial is forced."""
        running, spec = self._running, self._running.spec
        probe = Probe(batch, self._worker_bytes, self._main_bytes, self._buffer_bytes)
        foreseen = predict(probe, effective_settings(spec), spec.consumer.copy)
        running.found |= {"batch": batch.as_json(), "probe": probe.as_json(), "predicted": foreseen.as_json()}
        why = None if spec.is_forced else refusal(foreseen, self._limits)
        if why is not None:
            foreseen_facts = {name: running.found[name] for name in ("batch", "probe", "predicted")}
            raise RefusedError(why, {**foreseen_facts, "exceeds": exceeded(foreseen, self._limits)[0]})

    def give_reasons(self) -> None:
        """For what is not known."""
        reasons, found = self._running.reasons, self._running.found
        if found["probe"]["worker_rss_bytes"] is None:
            reasons.add("probe.worker_rss_bytes", "no batch could be made beside the trial, so no worker was looked at")
        if found["predicted"]["ram_bytes"] is None:
            named = ("worker_rss_bytes", "main_rss_bytes", "buffer_bytes_per_worker")
            why = next((reason for name in named if (reason := reasons.of(f"probe.{name}"))), "a part of it is not known")
            reasons.add("predicted.ram_bytes", why)


def _resident_bytes() -> int:
    return parse_stat(read_text("/proc/self/stat")).rss_pages * _PAGE_BYTES


def _buffer_bytes(running: Running) -> int:
    """Of webdataset's shuffle buffer in a worker, full of stored samples of mean length; other readers have none."""
    workload, layout = running.spec.workload, running.spec.layout
    if layout.reader != "webdataset" or not workload.shuffle:
        return 0
    num_samples, num_bytes = running.side.num_samples, stored_bytes(layout.uri)
    if not num_samples or not num_bytes:
        raise Unknown("the mean length of a sample is not known, nor so what a shuffle buffer holds")
    mean_bytes = num_bytes / num_samples
    buffer = workload.buffer_samples(num_samples, running.spec.settings.num_workers)
    return round(min(buffer, num_samples) * mean_bytes)
