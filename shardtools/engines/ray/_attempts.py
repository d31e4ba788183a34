"""What runs on a worker, and how what it did is counted where it is done again after a loss."""

import gc
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import shardtools
from shardtools.engines import GC_THRESHOLD, Progress, Report, Task
from shardtools.errors import ShardtoolsError

REPORT_SECONDS = 0.2
NOTHING = Progress(0, 0, 0)


class Done(NamedTuple):
    """The end of an item."""

    result: Any
    total: Progress


class Mail(NamedTuple):
    """What one attempt at an item has done since it began."""

    item: int
    attempt: str
    total: Progress


class Inbox:
    """An actor that keeps the latest mail of every attempt until it is taken."""

    def __init__(self) -> None:
        self._latest: dict[str, Mail] = {}

    def put(self, mail: Mail) -> None:
        self._latest[mail.attempt] = mail

    def take(self) -> list[Mail]:
        taken, self._latest = self._latest, {}
        return list(taken.values())


def attempt(version: str, task: Task, item: Any, number: int, inbox: Any) -> Done | Exception:
    """Run the task on an item, on whatever machine; what it raises is returned, so that Ray itself sees losses only.

    ``inbox`` is the handle of an ``Inbox``, ``number`` the item's in its mail.
    """
    gc.set_threshold(GC_THRESHOLD)
    if version != shardtools.__version__:
        return ShardtoolsError(
            f"expected shardtools {version} on every node of the cluster, as where the run was started, got {shardtools.__version__} "
            f"on {os.uname().nodename}; install the same version everywhere"
        )
    meter = _Meter(number, inbox.put.remote)
    try:
        return Done(task(item, meter), meter.total)
    except ShardtoolsError as error:
        return error
    except Exception:
        return RuntimeError(f"a worker process failed:\n{traceback.format_exc()}")


@dataclass
class _Meter:
    """Sends what was done a few times a second; what is done sooner comes with the end."""

    item: int
    send: Callable[[Mail], object]
    attempt: str = field(default_factory=lambda: os.urandom(8).hex())
    total: Progress = NOTHING
    next_time: float = field(default_factory=lambda: time.monotonic() + REPORT_SECONDS)

    def __call__(self, progress: Progress) -> None:
        self.total = Progress(*(a + b for a, b in zip(self.total, progress, strict=True)))
        if time.monotonic() >= self.next_time:
            self.send(Mail(self.item, self.attempt, self.total))
            self.next_time = time.monotonic() + REPORT_SECONDS


class Counted:
    """Reports what all open items have done, each once: what a lost attempt had done is taken back when the next begins."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._reported: dict[int, Progress] = {}
        self._attempts: dict[int, list[str]] = {}

    def begin(self, item: int) -> None:
        self._reported[item] = NOTHING
        self._attempts[item] = []

    def note(self, mail: Mail) -> None:
        """Mail may be late: of an item that is done, or of an attempt that was given up."""
        attempts = self._attempts.get(mail.item)
        if attempts is None or mail.attempt in attempts[:-1]:
            return
        if attempts[-1:] != [mail.attempt]:
            attempts.append(mail.attempt)
        self._change(mail.item, mail.total)

    def end(self, item: int, total: Progress) -> None:
        self._change(item, total)
        del self._reported[item], self._attempts[item]

    def _change(self, item: int, total: Progress) -> None:
        change = Progress(*(a - b for a, b in zip(total, self._reported[item], strict=True)))
        self._reported[item] = total
        if any(change):
            self._report(change)
