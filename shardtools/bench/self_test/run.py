"""One self-test: data, each case in turn, and what came of it."""

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardtools.bench.counters import host
from shardtools.bench.devices import require_torch
from shardtools.bench.not_measured import Unknown
from shardtools.bench.processes.folders import private_folder
from shardtools.bench.processes.own_process import OwnProcess
from shardtools.bench.self_test.cases import SMALL_SHM_BYTES, Case, cases_of
from shardtools.bench.self_test.confined import ANSWER_NAME
from shardtools.bench.self_test.data import can_be_cold, small_files
from shardtools.bench.self_test.outcome import Outcome, SelfTest
from shardtools.bench.spec import Settings, TrialSpec
from shardtools.errors import ShardtoolsError
from shardtools.signals import ends_tidily

Say = Callable[[str], None]

_CONFINED = "shardtools.bench.self_test.confined"
_END_SECONDS = 20.0
"""In which an interrupted process has ended its trials."""
_NO_COLD = "the folder for temporary files is in memory, so no file can be cold; set TMPDIR to one on disk"
_UNSAFE_TIMES = 1.25
"""Of the shared memory that is free: surely above the share a trial may take."""


def self_test(say: Say, repeats: int = 1, only: Sequence[str] = (), seed: int = 0) -> SelfTest:
    """Plants every fault, or those of the cases or classes in ``only``, ``repeats`` times; ``say`` hears a line a case.

    Everything is made for it and removed at the end, also of an interrupt. Raises UsageError for a name that is no case, StorageError
    where the data cannot be written, ShardtoolsError where torch cannot be imported.
    """
    cases = cases_of(tuple(only))
    require_torch()
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with small_files(seed=seed) as folder:
        for number in range(repeats):
            for case in cases:
                say(f"planting {case.name} ({len(outcomes) + 1} of {repeats * len(cases)}): {case.how}")
                outcomes.append(run_case(case, folder, say, seed + number))
                told = f"{outcomes[-1].mark} ({outcomes[-1].verdict or outcomes[-1].sentence})"
                say(f"{case.name}: {told}{_to_go(time.monotonic() - began, len(outcomes), repeats * len(cases))}")
    return SelfTest(tuple(outcomes), time.monotonic() - began)


def _to_go(seconds: float, num_done: int, num_all: int) -> str:
    """By the cases that are done."""
    left = (num_all - num_done) * seconds / num_done
    return f"; about {left / 60:.0f} min to go" if left >= 90 else f"; about {left:.0f} s to go" if left else ""


def run_case(case: Case, folder: str, say: Say, seed: int = 0) -> Outcome:
    """The verdict on one case, over the data in ``folder``."""
    began = time.monotonic()
    spec = case.spec(folder, seed)
    if case.needs_cold and not can_be_cold(folder):
        return Outcome(case, None, sentence=_NO_COLD)
    try:
        found = _confined(spec) if case.place == "small-shm" else _judged(spec, say, seed)
    except Unknown as unknown:
        return Outcome(case, None, sentence=str(unknown))
    ci = found["ci"]
    return Outcome(
        case,
        found["class"],
        found["confidence"],
        found["ratio"],
        None if ci is None else (ci[0], ci[1]),
        time.monotonic() - began,
        found["sentence"],
        tuple(found["evidence"]),
    )


def _judged(spec: TrialSpec, say: Say, seed: int = 0) -> dict[str, Any]:
    # Here, since it imports all that attribution needs.
    from shardtools.bench.self_test.judge import judged

    return judged(spec, say, seed)


def _confined(spec: TrialSpec) -> dict[str, Any]:
    """By a process whose shared memory is small; where this user may not have one, at a setting that is too much for what there is.

    Raises Unknown where it would then be forced to fill the machine's own.
    """
    said = _answer(spec)
    if "cannot" not in said:
        verdict: dict[str, Any] = said["verdict"]
        return verdict
    if spec.is_forced:
        raise Unknown(said["cannot"])
    return _judged(replace(spec, settings=_too_much(spec)), lambda _: None)


def _too_much(spec: TrialSpec) -> Settings:
    """A prefetch factor whose batches would not fit into shared memory: the trial is refused when the first of them is there."""
    from shardtools.bench.self_test.plants import LARGE_BYTES

    num_batches = int(_UNSAFE_TIMES * host.shared_memory().free_bytes / (LARGE_BYTES * spec.workload.batch_size))
    return replace(spec.settings, num_workers=1, prefetch_factor=max(2, num_batches))


def _answer(spec: TrialSpec) -> dict[str, Any]:
    """An interrupt gives it time to end the trial that it runs, which is in a group of its own."""
    with ends_tidily(), private_folder() as folder, OwnProcess(_CONFINED, folder, (str(SMALL_SHM_BYTES),)) as process:
        process.tell(json.dumps(spec.as_json()).encode())
        try:
            code = process.wait(math.inf)
        finally:
            process.close(_END_SECONDS)
        try:
            with open(os.path.join(folder, ANSWER_NAME), encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            said = process.last_line or "nothing"
            raise ShardtoolsError(f"expected a verdict from {_CONFINED}, got exit code {code}, saying: {said}; run it again") from None
    return found
