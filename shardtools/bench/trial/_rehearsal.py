"""One batch, made before a trial begins, so that what its loader will take is known before any worker starts.

A copy of the trial's process opens the data, as the trial will, and a copy of that makes a batch, as a worker of the loader will but
without sending it: nothing is put into shared memory. Both are gone before the page cache is prepared and before the trial opens
anything, so that caches, the numbering of epochs, random numbers, open files and the trial's own memory are as if there had been none.
What it costs is opening the data twice, and one batch.
"""

import multiprocessing
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from shardtools.bench.counters.process import parse_anonymous, parse_private
from shardtools.bench.not_measured import Unknown, read_text
from shardtools.bench.prediction import Batch
from shardtools.bench.processes.groups import group_members, signal_one
from shardtools.bench.processes.leftovers import kill_strays, remove_shared_memory, shared_memory_of
from shardtools.bench.readers import Side, free_shared_memory, open_side
from shardtools.bench.spec import TrialSpec
from shardtools.bench.trial._running import trial_loader
from shardtools.bench.trial.loader import BATCH_TIMEOUT_SECONDS, limit_threads

_END_SECONDS = 2.0
_TIMEOUT_SHARE = 0.25
"""Of the time a trial has: one that hangs shall show it by itself."""


@dataclass(frozen=True)
class Rehearsal:
    """What came of it."""

    batch: Batch
    worker_bytes: int | None
    """Memory a worker has for itself when it has made a batch."""


def rehearsed(spec: TrialSpec, token: str) -> Rehearsal | None:
    """None where it fails or takes too long: the trial will, too, and say how. Nothing of it is left, whatever the data's own code did.

    Only where processes can be copied without harm, which is on Linux; elsewhere the first batch of the loader itself tells.
    """
    if not os.path.isdir("/proc/self"):
        return None
    group = os.getpgrp()
    before, shm_before = set(group_members(group)), shared_memory_of(group)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_open, args=(spec, there))
    process.start()
    there.close()
    found = _heard(here, min(BATCH_TIMEOUT_SECONDS, _TIMEOUT_SHARE * spec.timeout_seconds))
    names = shared_memory_of(group) - shm_before
    with suppress(OSError):
        here.send(None)
    process.join(_END_SECONDS)
    for pid in set(group_members(group)) - before:
        signal_one(pid, signal.SIGKILL)
    process.join()
    here.close()
    kill_strays(token, group)
    remove_shared_memory(names, group)
    if spec.layout.reader == "streaming" and process.pid is not None:
        free_shared_memory(process.pid)
    return found


def _heard(here: Connection, seconds: float) -> Rehearsal | None:
    with suppress(EOFError, OSError):
        if here.poll(seconds):
            found: Rehearsal | None = here.recv()
            return found
    return None


def _open(spec: TrialSpec, there: Connection) -> None:
    """In the first copy. It ends when it is told to: while it waits it can be seen what is in use."""
    limit_threads()
    side = None
    try:
        side = open_side(spec.layout, spec.workload, spec.settings, None, spec.intervention, spec.plant)
        worker = multiprocessing.get_context("fork").Process(target=_make, args=(spec, side, there))
        worker.start()
        worker.join()
    except Exception:
        _tell(there, None)
    finally:
        if side is not None:
            side.close()
        os._exit(0)  # threads of a reader that is left early would be waited for


def _make(spec: TrialSpec, side: Side, there: Connection) -> None:
    """In the second."""
    found = None
    try:
        alone = replace(spec, settings=replace(spec.settings, num_workers=0))
        sent = next(iter(trial_loader(alone, side.dataset, side.loader_kwargs)), None)
        if sent is not None:
            found = Rehearsal(Batch.of(sent.batch, sent.num_samples), _worker_bytes(spec))
    except Exception:
        found = None
    _tell(there, found)
    os._exit(0)


def _tell(there: Connection, found: Any) -> None:
    with suppress(OSError, EOFError):
        there.send(found)
        there.recv()


def _worker_bytes(spec: TrialSpec) -> int | None:
    """A worker that is forked shares what nobody writes to with the process that forked it; one that is started afresh shares files."""
    is_forked = (spec.settings.start_method or multiprocessing.get_start_method()) == "fork"
    try:
        return (parse_private if is_forked else parse_anonymous)(read_text("/proc/self/smaps_rollup"))
    except Unknown:
        return None
