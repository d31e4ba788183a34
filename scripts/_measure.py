"""Interleaved runs of the sides of a comparison, each a fresh process, and what they took."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DESTINATION = "{destination}"
"""Stands in a command for where this run writes, an emptied folder."""
_TOLD = re.compile(rb"^([a-z_]+)=(\d+(?:\.\d+)?)$", re.MULTILINE)


@dataclass(frozen=True)
class Contents:
    """What every side of a case must leave at its destination, so that none is quick because it does less."""

    read: Callable[[Path], Any]
    expected: Any


@dataclass(frozen=True)
class Side:
    """One program of a comparison."""

    name: str
    command: tuple[str, ...]
    num_samples: int
    contents: Contents | None = None
    empty: Callable[[], None] = lambda: None
    """Removes what an earlier run left elsewhere; not part of any time."""


@dataclass(frozen=True)
class Run:
    """What one process and all its children took."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    """Of the largest process."""
    loop_seconds: float | None
    """What a peer says its loop took, its imports not counted."""
    told: dict[str, float]
    """Every number that the process printed as a line of its own, ``name=value``."""


Round = dict[str, Run]


@dataclass(frozen=True)
class Claim:
    """A number that a case yields each round, and the bound its median must keep."""

    text: str
    value: Callable[[Round], float]
    bound: float
    at_most: bool = False

    def is_met(self, values: Sequence[float]) -> bool:
        median = statistics.median(values)
        return median <= self.bound if self.at_most else median >= self.bound


@dataclass
class Case:
    name: str
    sides: list[Side]
    claims: list[Claim]
    rounds: list[Round] = field(default_factory=list)
    close: Callable[[], None] = lambda: None
    """Ends what serves the case."""

    def values(self, claim: Claim) -> list[float]:
        return [claim.value(round_) for round_ in self.rounds]


def measure(case: Case, work: Path, num_rounds: int) -> None:
    """Run every side once a round; round 0 warms the caches, has its output checked and does not count."""
    for i in range(num_rounds + 1):
        round_: Round = {}
        for side in case.sides:
            round_[side.name] = run = run_side(side, work / "out", check=i == 0)
            say(f"{case.name}: {f'round {i} of {num_rounds}' if i else 'warm-up'}: {side.name}: {run.wall_seconds:.2f} s")
        if i:
            case.rounds.append(round_)


def run_side(side: Side, folder: Path, check: bool) -> Run:
    """Run a side into an emptied folder, with nothing left to write back from the run before."""
    remove(folder)
    side.empty()
    folder.mkdir()
    destination = folder / "dataset"
    os.sync()
    run = run_command([str(destination) if part == DESTINATION else part for part in side.command])
    if check and side.contents is not None and (found := side.contents.read(destination)) != side.contents.expected:
        raise SystemExit(f"expected {side.contents.expected} from {side.name}, got {found}")
    remove(folder)
    return run


def run_command(command: Sequence[str]) -> Run:
    """Raises SystemExit with what the command wrote to standard error, if it failed."""
    # Both sides may keep compiled modules, whatever this shell says: everybody's second run has them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment)
        # The usage covers the children that the process itself waited for. A peak is never below this process's own,
        # which the child briefly shares: big data must be made elsewhere.
        _, status, usage = os.wait4(process.pid, 0)
        wall_seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            said = errors.read().decode(errors="replace")
            raise SystemExit(f"{' '.join(command)}\nended with exit code {process.returncode}:\n{said}")
        told = {name.decode(): float(value) for name, value in _TOLD.findall(output.read())}
    return Run(wall_seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, told.get("loop_seconds"), told)


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
