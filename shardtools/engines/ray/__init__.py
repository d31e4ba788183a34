"""Partitions as tasks of Ray: on this machine, or spread over the nodes of a cluster."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from shardtools.engines import OnResult, Report, Task, ignore_result
from shardtools.errors import UsageError

if TYPE_CHECKING:
    from shardtools.engines.ray._crew import Crew


@dataclass(frozen=True)
class Ray:
    """A node that is lost costs the work on its partitions, not the run: they are built again elsewhere."""

    workers: int | None = None
    """Tasks at a time; None: one for each core this process may use, or for each CPU of the cluster."""
    ray_address: str | None = None
    """Of the cluster's head, ``HOST:PORT``, or ``auto`` on one of its nodes; None: Ray is started here, for this run alone."""
    _live: list[ExitStack] = field(default_factory=list, init=False, repr=False, compare=False)
    """What ends the sessions whose contexts are open, the innermost last."""

    spans_machines: ClassVar[bool] = True

    def __enter__(self) -> "Crew":
        try:  # it takes its time to import, and not everyone has it
            from shardtools.engines.ray._session import session
        except ImportError as error:
            raise UsageError(f"expected the package ray for --engine ray, got none ({error}); pip install 'shardtools[ray]'") from None
        with ExitStack() as opened:
            crew = opened.enter_context(session(self.workers, self.ray_address))
            self._live.append(opened.pop_all())
        return crew

    def __exit__(self, *exception: Any) -> None:
        self._live.pop().__exit__(*exception)

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        """In a session that is there for this call alone."""
        with self as crew:
            crew.run(task, items, report, on_result)
