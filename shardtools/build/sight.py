"""Work on other machines: each must see the inputs and the destination that the run was started with."""

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shardtools.build.receipts import PLAN_NAME
from shardtools.engines import Engine, OnResult, Report, Task, ignore_result
from shardtools.errors import StorageError
from shardtools.sources import Input, first_files
from shardtools.storage import Storage, open_storage

_MAX_LOOKED_AT = 200
"""Folders in which a first file is looked for."""


@dataclass(frozen=True)
class Landmark:
    """An object that is there, and how long it is."""

    root: str
    name: str
    num_bytes: int | None
    purpose: str
    """What of the run lies there."""

    def demand(self) -> None:
        """Raises StorageError where this machine does not see it."""
        found = open_storage(self.root).num_bytes(self.name)
        if found != self.num_bytes:
            got = "none" if found is None else f"another of {found:,} bytes"
            raise StorageError(
                f"expected every machine that works for this run to see {self.purpose} {self.root}, with {self.name} in it, got {got} "
                f"on {platform.node()}; put it on a file system that all of them mount at the same path, or into a bucket, and start "
                "all with the same AWS environment"
            )


def seeing_inputs(engine: Engine, inputs: Iterable[Input]) -> Engine:
    """The engine, whose tasks fail in one sentence on a machine that does not see the first file of each input as this one does."""
    return _seeing(engine, lambda: tuple(mark for given in inputs for mark in _first_of(given)))


def seeing_destination(engine: Engine, storage: Storage) -> Engine:
    """The same of a destination that is prepared."""
    return _seeing(engine, lambda: (Landmark(storage.uri, PLAN_NAME, storage.num_bytes(PLAN_NAME), "the destination"),))


def _seeing(engine: Engine, look: Callable[[], tuple[Landmark, ...]]) -> Engine:
    return _Seeing(engine, look()) if engine.spans_machines else engine


def _first_of(given: Input) -> list[Landmark]:
    names = map(os.fsdecode, first_files(given, _MAX_LOOKED_AT)[:1])
    return [Landmark(given.root, name, open_storage(given.root).num_bytes(name), "the input") for name in names]


@dataclass(frozen=True)
class _Seeing:
    """An engine that is live already; its workers look before their first task, also those of a machine that joins later."""

    engine: Engine
    landmarks: tuple[Landmark, ...]

    @property
    def spans_machines(self) -> bool:
        return self.engine.spans_machines

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        self.engine.run(_Looking(task, self.landmarks), items, report, on_result)


@dataclass(frozen=True)
class _Looking:
    task: Task
    landmarks: tuple[Landmark, ...]

    def __call__(self, item: Any, report: Report) -> Any:
        _look(self.landmarks)
        return self.task(item, report)


@lru_cache(maxsize=4)
def _look(landmarks: tuple[Landmark, ...]) -> None:
    """Once in each process and for each run; what fails is not kept."""
    for landmark in landmarks:
        landmark.demand()
