"""What torch says of itself, and the batches it makes of data, learnt from a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.bench import versions
from shardtools.bench.doctor.torch_child import MARK
from shardtools.bench.not_measured import Unknown
from shardtools.bench.processes import groups as processes
from shardtools.bench.processes.leftovers import end_group

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
        out, reason = _answers({"uris": list(uris), "batch_size": batch_size}, seconds)
    except OSError as error:
        raise Unknown(f"{sys.executable} cannot be started: {error.strerror}") from None
    found = [json.loads(line.removeprefix(MARK)) for line in out.splitlines() if line.startswith(MARK)]
    if not found:
        raise Unknown(reason or "the process that imports it told nothing")
    first, sides = found[0], [entry["side"] for entry in found[1:]]
    sides += [{**_UNREAD, "uri": uri, "samples": batch_size, "error": reason} for uri in uris[len(sides) :]]
    return Learnt(first["torch"], first["main_bytes"], first["worker_bytes"], sides)


def _answers(asked: dict[str, Any], seconds: float) -> tuple[str, str | None]:
    """What the process printed, and why that is not all."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shardtools.bench.doctor.torch_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **processes.THREAD_VARIABLES},
    )
    try:
        out, said = process.communicate(json.dumps(asked).encode() + b"\n", seconds)
        reason = _last_words(process.returncode, said) if process.returncode else None
    except subprocess.TimeoutExpired:
        end_group(process.pid)
        out, _ = process.communicate()
        reason = f"it took over {seconds:.0f} s"
    finally:
        if process.returncode is None:
            end_group(process.pid)
            process.communicate()
    return out.decode("utf-8", "replace"), reason


def _last_words(code: int, said: bytes) -> str:
    words = said.decode("utf-8", "replace").strip().splitlines()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process that imports it ended with {how}" + (f", saying: {words[-1].strip()}" if words else "")
