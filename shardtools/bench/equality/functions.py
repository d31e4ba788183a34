"""The user's functions tried on the first samples of each side, before anything long begins."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shardtools.bench.processes.folders import private_folder
from shardtools.bench.processes.own_process import OwnProcess
from shardtools.bench.readers.shared_memory import free_shared_memory
from shardtools.bench.spec import Consumer, Layout, Settings, Workload
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.signals import ends_tidily

STEPS_NAME, RESULT_NAME = "steps", "result"
_POLL_SECONDS = 0.02
_IMPORT_SECONDS = 120.0
"""Of torch, before the first step is announced."""


def try_functions(
    layouts: Sequence[Layout], workload: Workload, consumer: Consumer, settings: Settings | None = None, timeout_seconds: float = 60.0
) -> None:
    """Runs decode, transform, collate and the model's step on one batch of each side, in a fresh process.

    Nothing is run where no function is the user's and no model computes. The workload is settled. With ``settings`` that have workers
    a batch must be one that can be sent from one. ``timeout_seconds``: of each call; a model may take five times as long.

    Raises UsageError, in one sentence that names the function, the sample and the line, for a function that is not there, fails, returns
    None or what cannot be collated, exits, or does not return; ShardtoolsError where a side cannot be read.
    """
    names = (workload.decode if ":" in workload.decode else None, workload.transform, workload.collate)
    if not any(names) and consumer.kind != "model":
        return
    asked = {
        "layouts": [asdict(layout) for layout in layouts],
        "workload": asdict(workload),
        "consumer": asdict(consumer),
        "settings": asdict(settings or Settings(0)),
        "seconds": timeout_seconds,
    }
    with ends_tidily(), private_folder() as folder:
        _run(folder, asked)


def _run(folder: str, asked: dict[str, Any]) -> None:
    """What functions print is never the bench's own output."""
    with OwnProcess("shardtools.bench.equality.process", folder, ("functions_child",)) as process:
        process.tell(json.dumps(asked).encode())
        code, step = _followed(process, folder)
    free_shared_memory(process.pid, folder)
    _judge(folder, code, step, process.last_line)


def _followed(process: OwnProcess, folder: str) -> tuple[int | None, dict[str, Any]]:
    """Its exit code, None where a step took too long, and its last step."""
    path, num_bytes = os.path.join(folder, STEPS_NAME), 0
    latest = time.monotonic() + _IMPORT_SECONDS
    step: dict[str, Any] = {"what": "the process that tries functions", "is_own": False, "seconds": _IMPORT_SECONDS}
    while True:
        code = process.exit_code()
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as steps:
            steps.seek(num_bytes)
            *lines, _ = steps.read().split(b"\n")
            if lines:
                num_bytes += sum(len(line) + 1 for line in lines)
                step = json.loads(lines[-1])
                latest = time.monotonic() + step["seconds"]
        if code is not None or time.monotonic() > latest:
            return code, step
        time.sleep(_POLL_SECONDS)


def _judge(folder: str, code: int | None, step: dict[str, Any], last_line: str) -> None:
    """Raises what the process found, or what became of it."""
    wrong = UsageError if step["is_own"] else ShardtoolsError
    path = os.path.join(folder, RESULT_NAME)
    if code is None:
        raise wrong(f"expected {step['what']} to return, but it took longer than {step['seconds']:g} seconds; look where it waits")
    if not os.path.exists(path):
        how = f"exit code {code}" if code >= 0 else f"the signal {signal.Signals(-code).name}"
        said = f", and its last words were: {last_line[:200]}" if last_line else ""
        raise wrong(f"expected {step['what']} to return, but its process ended with {how}{said}; a function must return")
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    if found["fault"] is not None:
        raise (UsageError if found["is_usage"] else ShardtoolsError)(found["fault"])
