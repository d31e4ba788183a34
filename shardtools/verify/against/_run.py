"""Tasks on an engine that is live, which is started only where it pays."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shardtools.engines import Engine, Report, Task, num_cores
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial

# Starting worker processes takes longer than comparing this much.
_WORTH_WORKERS_BYTES = 64 << 20
_WORTH_WORKERS_SAMPLES = 20_000


@contextmanager
def live_engine(workers: int | None, num_bytes: int, num_samples: int) -> Iterator[Engine]:
    """Worker processes where there is enough to do for them, for as long as the context is open."""
    is_small = num_bytes < _WORTH_WORKERS_BYTES and num_samples < _WORTH_WORKERS_SAMPLES
    engine: Engine = Serial() if workers == 1 or (workers is None and is_small) else Processes(workers or num_cores())
    with engine as live:
        yield live


def run_each(engine: Engine, task: Task, items: Sequence[Any], take: Callable[[int, Any], None]) -> None:
    """Run the task on every item; ``take`` gets each item's number and result, in any order, so that none must be kept."""
    engine.run(_Numbered(task), list(enumerate(items)), lambda _: None, lambda result: take(*result))


def results(engine: Engine, task: Task, items: Sequence[Any]) -> list[Any]:
    """What the task makes of each item, in their order. For small results."""
    found: dict[int, Any] = {}
    run_each(engine, task, items, found.__setitem__)
    return [found[i] for i in range(len(items))]


@dataclass(frozen=True)
class _Numbered:
    """The task, its result with the number of its item."""

    task: Task

    def __call__(self, item: tuple[int, Any], report: Report) -> tuple[int, Any]:
        return item[0], self.task(item[1], report)
