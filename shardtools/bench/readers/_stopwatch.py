"""Time of stages that lie in each other, as where a parser asks for bytes while it parses."""

import time
from collections.abc import Iterator
from typing import Any, TypeVar

from shardtools.bench.timers import StageTimers

Item = TypeVar("Item")


class Stopwatch:
    """Of an inner stage, entered many times an item: kept by itself until the item is there, since each look at timers costs."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.num_bytes = 0

    def add(self, began: tuple[float, float], num_bytes: int = 0) -> None:
        """From ``now()`` then to now."""
        wall, cpu = now()
        self.wall_s += wall - began[0]
        self.cpu_s += cpu - began[1]
        self.num_bytes += num_bytes

    def flush(self, timers: StageTimers, stage: str) -> tuple[float, float]:
        """Tells the timers, begins at nothing again, and returns the seconds."""
        wall, cpu = self.wall_s, self.cpu_s
        timers.add(stage, wall, cpu, self.num_bytes)
        self.wall_s = self.cpu_s = 0.0
        self.num_bytes = 0
        return wall, cpu


def now() -> tuple[float, float]:
    """Wall and thread CPU seconds."""
    return time.perf_counter(), time.thread_time()


def timed_parse(items: Iterator[Item], timers: StageTimers, storage: Stopwatch) -> Iterator[Item]:
    """The same items; of the time it takes to get each, ``storage`` is one stage and the rest, parsing, another."""
    while True:
        wall, cpu = now()
        try:
            item = next(items)
        except StopIteration:
            return
        whole_wall, whole_cpu = now()
        in_wall, in_cpu = storage.flush(timers, "storage")
        timers.add("parse", whole_wall - wall - in_wall, whole_cpu - cpu - in_cpu)
        yield item


class TimedFile:
    """A binary file whose reads are counted."""

    def __init__(self, file: Any, storage: Stopwatch) -> None:
        self._file = file
        self._storage = storage

    def read(self, num_bytes: int = -1) -> bytes:
        began = now()
        data: bytes = self._file.read(num_bytes)
        self._storage.add(began, len(data))
        return data

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "TimedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
