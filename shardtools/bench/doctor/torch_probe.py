"""What torch says of itself, and the batches it makes of data, learnt from a process of its own."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from shardtools.bench import versions
from shardtools.bench.doctor.torch_child import ANSWERS_NAME
from shardtools.bench.not_measured import Unknown
from shardtools.bench.processes.folders import private_folder
from shardtools.bench.processes.own_process import OwnProcess
from shardtools.signals import ends_tidily

_SECONDS = 60.0
_UNREAD: dict[str, Any] = {"kind": None, "num_shards": None, "batches": []}


@dataclass(frozen=True)
class Learnt:
    """From the process."""

    torch: dict[str, Any]
    main_bytes: int | None
    """Memory a process that has torch loaded shares with nobody."""
    worker_bytes: int | None
    """The same of one started as workers are, which has made no batch."""
    sides: list[dict[str, Any]]


def learn(uris: Sequence[str], batch_size: int, seconds: float = _SECONDS) -> Learnt:
    """``sides`` has an entry for every URI, with the reason where no batch was made in time.

    Raises Unknown where torch is not installed, or cannot be imported in that time.
    """
    versions.version_of("torch")
    try:
        with ends_tidily(), private_folder() as folder:
            found, reason = _answers(folder, {"uris": list(uris), "batch_size": batch_size}, seconds)
    except OSError as error:
        raise Unknown(f"{sys.executable} cannot be started: {error.strerror}") from None
    if not found:
        raise Unknown(reason or "the process that imports it told nothing")
    first, *sides = found
    sides += [{**_UNREAD, "uri": uri, "samples": batch_size, "error": reason} for uri in uris[len(sides) :]]
    return Learnt(first["torch"], first["main_bytes"], first["worker_bytes"], sides)


def _answers(folder: str, asked: dict[str, Any], seconds: float) -> tuple[list[dict[str, Any]], str | None]:
    """What the process told, and why that is not all."""
    with OwnProcess("shardtools.bench.doctor.torch_child", folder) as process:
        process.tell(json.dumps(asked).encode())
        code = process.wait(seconds)
    found = []
    with suppress(FileNotFoundError), open(os.path.join(folder, ANSWERS_NAME), encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines if line.endswith("\n")]
    if code is None:
        return found, f"it took over {seconds:.0f} s"
    return found, _end(code, process.last_line) if code else None


def _end(code: int, last_line: str) -> str:
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process that imports it ended with {how}" + (f", saying: {last_line}" if last_line else "")
