"""Everything in the calling process, one item after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from shardtools.engines import OnResult, Report, Task, ignore_result


@dataclass(frozen=True)
class Serial:
    """The engine to debug with, and the one every other must equal."""

    spans_machines: ClassVar[bool] = False

    def __enter__(self) -> "Serial":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        for item in items:
            on_result(task(item, report))
