"""A device that computes nothing and takes the time of one that does, for the code that drives a real one.

On the virtual clock a whole trial takes no time and every figure is exact; on the real one the host waits as it would for a GPU.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from shardtools.bench.leaves import Leaf, leaves


class SimClock(Protocol):
    """Seconds of the host."""

    def now(self) -> float: ...

    def until(self, moment: float) -> None:
        """The host waits; nothing where the moment has passed."""


class VirtualClock:
    """Stands still until told to move."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def until(self, moment: float) -> None:
        self._now = max(self._now, moment)

    def pass_by(self, seconds: float) -> None:
        """The host is busy with something else."""
        self._now += seconds


class RealClock:
    """The machine's."""

    def now(self) -> float:
        return time.perf_counter()

    def until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - time.perf_counter()))


@dataclass(eq=False)
class SimStream:
    """Work in order; ``free_at`` is when the last of it is done."""

    free_at: float = 0.0


@dataclass(eq=False)
class SimMark:
    """When its stream gets there."""

    at: float = 0.0


class SimDevice:
    """Copies at ``copy_gbps`` GB/s (10^9 bytes) through one copy engine, computes for as long as it is told.

    ``pins``: tensors the loader's pinning thread would reach are taken to be pinned; others are copied while the host waits.
    ``held`` lists what ``hold`` was told of, which a real device needs for its data to stay right.
    """

    name = "sim"
    has_copies = True
    target = "cpu"

    def __init__(self, clock: SimClock, copy_gbps: float = 12.0, pins: bool = True) -> None:
        self.clock = clock
        self._bytes_per_second = copy_gbps * 1e9
        self._pins = pins
        self._main = SimStream()
        self._streams = [self._main]
        self._current = self._main
        self._engine_free_at = 0.0
        self.held: list[tuple[int, SimStream]] = []

    def now(self) -> float:
        return self.clock.now()

    def main_stream(self) -> SimStream:
        return self._main

    def side_stream(self) -> SimStream:
        self._streams.append(SimStream())
        return self._streams[-1]

    @contextmanager
    def on(self, stream: SimStream) -> Iterator[None]:
        before, self._current = self._current, stream
        try:
            yield
        finally:
            self._current = before

    def copied(self, batch: Any, non_blocking: bool) -> Any:
        found = leaves(batch)
        num_bytes = sum(leaf.tensor.numel() * leaf.tensor.element_size() for leaf in found)
        stream = self._current
        start = max(self.clock.now(), stream.free_at, self._engine_free_at)
        stream.free_at = self._engine_free_at = start + num_bytes / self._bytes_per_second
        if not non_blocking or not all(self.is_pinned(leaf) for leaf in found):
            self.clock.until(stream.free_at)
        return batch

    def wait(self, waiting: SimStream, other: SimStream) -> None:
        waiting.free_at = max(waiting.free_at, other.free_at)

    def hold(self, batch: Any, stream: SimStream) -> None:
        self.held = [*self.held[-3:], (id(batch), stream)]

    def busy(self, milliseconds: float) -> None:
        stream = self._current
        stream.free_at = max(self.clock.now(), stream.free_at) + milliseconds / 1000

    def new_mark(self) -> SimMark:
        return SimMark()

    def record(self, mark: SimMark) -> None:
        mark.at = max(self.clock.now(), self._current.free_at)

    def wait_for(self, mark: SimMark) -> None:
        self.clock.until(mark.at)

    def between_ms(self, begin: SimMark, end: SimMark) -> float:
        return (end.at - begin.at) * 1000

    def synchronize(self) -> None:
        self.clock.until(max(stream.free_at for stream in self._streams))

    def is_pinned(self, leaf: Leaf) -> bool:
        return self._pins and leaf.is_reached

    def pinned_copy(self, tensor: Any) -> Any:
        return tensor.clone()
