"""Who runs the partitions. An engine knows nothing of samples: it runs a task on items and passes events on."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


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


class Task(Protocol):
    """Work on one item. Importable and picklable, so that another process or host can run it; safe to run twice.

    What it returns is picklable too, and small: it travels to the caller of ``Engine.run``.
    """

    def __call__(self, item: Any, report: Report, /) -> Any: ...


class Engine(Protocol):
    """A frozen dataclass or a small object; entered as a context before planning, so that it can warm up meanwhile."""

    def __enter__(self) -> "Engine": ...

    def __exit__(self, *exception: object) -> None:
        """End everything the engine started, at once where an exception is under way."""

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        """Run the task on every item, in any order. The first error of a task is raised.

        Reports, and one result for each item, are passed on in the caller's thread, in any order.
        """
