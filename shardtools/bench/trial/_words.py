"""How a trial's process ended, in one word and one sentence, from its exit and what it said."""

import re
import signal
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "refused", "oom_shm", "fd", "hang", "error"]

RESULT_NAME = "result.json"
EXIT_CODES = {"ok": 0, "refused": 2, "error": 1}

_FULL = 0.95
_LONGEST = 200
_OUT_OF_SHM = re.compile(
    r"unable to (allocate|resize|open) shared memory|unable to (write to|resize|mmap .* bytes from) file <[^>]*torch_"
    r"|out of shared memory|Bus error|SIGBUS|shm.*No space left on device|No space left on device.*shm",
    re.IGNORECASE,
)
_LOST_BATCH = re.compile(r"in _feed\n(?:(?!Traceback)[\s\S])*?unable to \w+ shared memory")
_OUT_OF_FILES = re.compile(
    r"received 0 items of ancdata|Too many open files|\[Errno 24\]|EMFILE|unable to open shared memory object.*\(24\)"
)
_KILLED = re.compile(r"is killed by signal")
_TIMED_OUT = re.compile(r"DataLoader timed out after")


@dataclass(frozen=True)
class End:
    """All that is known of an end."""

    exit_code: int | None
    """Negative: minus the signal. None: it did not end by itself and was ended."""
    reported: Status | None
    """What the process itself wrote down; None where it could not."""
    message: str
    said: str
    """Its standard error."""
    limit_seconds: float
    shm_share: float | None = None
    """How full shared memory was at the end."""


def judged(end: End) -> tuple[Status, str]:
    """The status and one sentence. A trial whose result is there is ``ok`` whatever it said."""
    if end.reported in ("ok", "refused"):
        return end.reported, end.message
    text = f"{end.said}\n{end.message}"
    has_timed_out = end.exit_code is None or _TIMED_OUT.search(text) is not None
    is_full = end.shm_share is not None and end.shm_share >= _FULL
    if _OUT_OF_FILES.search(text):
        return (
            "fd",
            f"the trial ran out of file descriptors; collate into fewer tensors or raise ulimit -n ({_evidence(_OUT_OF_FILES, text)})",
        )
    if _OUT_OF_SHM.search(text) or end.exit_code == -signal.SIGBUS or (has_timed_out and is_full):
        what = _evidence(_OUT_OF_SHM, text) or ("SIGBUS" if end.exit_code == -signal.SIGBUS else "/dev/shm is full")
        return "oom_shm", f"shared memory was full; use fewer workers, a lower prefetch factor or a larger /dev/shm ({what})"
    if end.exit_code is None:
        return "hang", f"the trial did not end within {end.limit_seconds:g} seconds{_last(end)}"
    if has_timed_out:
        return "hang", f"no batch came: {end.message or _evidence(_TIMED_OUT, text)}"
    if end.message:
        killed = _evidence(_KILLED, end.said)
        return "error", f"{end.message} ({killed})" if killed and not _KILLED.search(end.message) else end.message
    how = f"the signal {signal.Signals(-end.exit_code).name}" if end.exit_code < 0 else f"exit code {end.exit_code}"
    return "error", f"the trial's process ended by {how} without a result{_last(end)}"


def is_lost(said: str) -> bool:
    """A worker's thread that sends batches found shared memory full. The batch is dropped; the loader waits for it until its timeout."""
    return _LOST_BATCH.search(said) is not None


def _evidence(pattern: re.Pattern[str], text: str) -> str:
    """The line in which the words stand, cut to be printed, and they in it."""
    line = next((line.strip() for line in text.splitlines() if pattern.search(line)), "")
    found = pattern.search(line)
    begin = max(0, min(found.start(), len(line) - _LONGEST // 2) - _LONGEST // 2) if found and found.end() > _LONGEST else 0
    cut = line[begin : begin + _LONGEST]
    return f"{'...' * (begin > 0)}{cut}{'...' * (begin + _LONGEST < len(line))}"


def _last(end: End) -> str:
    lines = [line.strip() for line in end.said.splitlines() if line.strip()]
    return f", and its last words were: {lines[-1][:200]}" if lines else ""
