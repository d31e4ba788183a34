"""Decoders that do what must not happen, named to trials as ``--decode trial_faults:NAME``. Each runs where the data is read."""

import os
import resource
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker, shared_memory
from typing import Any

import torch


def sound(_: dict[str, Any]) -> Any:
    return torch.zeros(8)


def hang(_: dict[str, Any]) -> Any:
    time.sleep(600)


def hang_for_good(_: dict[str, Any]) -> Any:
    """As code that takes no notice of being asked to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def die(_: dict[str, Any]) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def bus_error(_: dict[str, Any]) -> Any:
    os.kill(os.getpid(), signal.SIGBUS)


def many_files(_: dict[str, Any]) -> Any:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return [open(os.devnull) for _ in range(100)]


def large(_: dict[str, Any]) -> Any:
    return torch.zeros(1 << 17)


def raises(_: dict[str, Any]) -> Any:
    raise ValueError("no such picture")


def litter(_: dict[str, Any]) -> Any:
    """Shared memory nobody tracks, a process in a session of its own, one in the group, and a file."""
    name = f"shardtools_test_{os.environ['SHARDTOOLS_TRIAL'][-8:]}"
    if not os.path.exists(f"/dev/shm/{name}"):
        block = shared_memory.SharedMemory(name, create=True, size=4096)
        resource_tracker.unregister(block._name, "shared_memory")  # type: ignore[attr-defined]
        globals()["kept"] = block
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(os.path.join(os.environ["TMPDIR"], "litter"), "w") as file:
            file.write("x")
    return torch.zeros(8)


def litter_and_hang(raw: dict[str, Any]) -> Any:
    litter(raw)
    time.sleep(600)


def stacked(samples: list[Any]) -> Any:
    """Not in shared memory until it is sent, which fails where nobody sees it when that is full."""
    return torch.stack(samples)
