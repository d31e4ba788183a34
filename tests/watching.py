"""What happens beside a test: waiting until something is so, and processes that are told from what they were started with."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal


def wait_until(is_so: Callable[[], object], seconds: float = 120.0) -> None:
    """Looks again and again. Fails after so many seconds, which are many: a machine may be busy with something else."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"what was waited for did not come within {seconds:g} s"
        time.sleep(0.01)


def processes_with(text: str, place: Literal["cmdline", "environ"]) -> list[str]:
    """Number and command line of each live process but this one that has the text in its command line or its environment.

    Processes come and go while one looks. One that ended and was not waited for yet is none.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, looked_at = (path / "cmdline").read_bytes(), (path / place).read_bytes()
        except OSError:
            continue
        if text.encode() in looked_at and path.name != str(os.getpid()):
            found.append(f"{path.name} {words.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def open_below(folder: Path | str) -> list[str]:
    """The files below a folder that this process has open; other threads open and close others at any time."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return [path for path in found if path.startswith(str(folder))]
