"""Who runs the partitions. An engine knows nothing of samples: it runs a task on items and passes events on."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

GC_THRESHOLD = 200_000
"""For every process that plans or builds: what it holds has no cycles, and looking for them in it costs a tenth of the time."""


class Progress(NamedTuple):
    """What was done since the last event of the same task."""

    num_samples: int
    num_bytes: int
    """Stored bytes."""
    num_rejects: int


Report = Callable[[Progress], None]
OnResult = Callable[[Any], None]


def ignore_result(result: Any) -> None:
    """For tasks that leave their result at the destination."""


def num_cores() -> int:
    """The cores this process may use; all of the machine's where the system cannot say."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Task(Protocol):
    """Work on one item. Importable and picklable, so that another process or host can run it; safe to run twice.

    What it returns is picklable too, and small: it travels to the caller of ``Engine.run``.
    """

    def __call__(self, item: Any, report: Report, /) -> Any: ...


class Engine(Protocol):
    """A frozen dataclass whose fields are the engine's options; what is alive while it runs is an engine of its own.

    Entered before planning, so that it can warm up meanwhile: ``with engine as live: live.run(...); live.run(...)``.
    """

    @property
    def spans_machines(self) -> bool:
        """Tasks may run on other machines, which need not see the same files or have the same environment."""

    def __enter__(self) -> "Engine":
        """What runs tasks until the context is left; itself where nothing has to be started."""

    def __exit__(self, *exception: object) -> None:
        """End everything the engine started, at once where an exception is under way."""

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        """Run the task on every item, in any order. The first error of a task is raised.

        Reports, and one result for each item, are passed on in the caller's thread, in any order.
        """
