"""Moments of each step: where the device stood, by marks on its streams or by waiting for it."""

from typing import Any, Protocol

from shardtools.bench.devices import Device

COPY_BEGIN, COPY_END, COMPUTE_BEGIN, COMPUTE_END = range(4)
_NUM_PLACES = 4
_RING_STEPS = 4096
"""Marks are made before the loop and used again: of a longer window the last so many steps are timed."""


class Marks(Protocol):
    """Steps are numbered from 0, warm-up included."""

    num_kept: int

    def mark(self, step: int, place: int) -> None: ...

    def between_ms(self, begin: tuple[int, int], end: tuple[int, int]) -> float:
        """Of two (step, place). Synchronize the device before."""


class DeviceMarks:
    """On the streams that do the work; the host never waits, and they are read when the loop is over."""

    def __init__(self, device: Device, num_kept: int = _RING_STEPS) -> None:
        self.num_kept = num_kept
        self._device = device
        self._ring: list[list[Any]] = [[device.new_mark() for _ in range(_NUM_PLACES)] for _ in range(num_kept)]

    def mark(self, step: int, place: int) -> None:
        self._device.record(self._ring[step % self.num_kept][place])

    def between_ms(self, begin: tuple[int, int], end: tuple[int, int]) -> float:
        return self._device.between_ms(*(self._ring[step % self.num_kept][place] for step, place in (begin, end)))


class HostMarks:
    """The host waits for the device at every one and reads its own clock: nothing overlaps, so each phase costs all it can."""

    def __init__(self, device: Device, num_kept: int = _RING_STEPS) -> None:
        self.num_kept = num_kept
        self._device = device
        self._ring = [[0.0] * _NUM_PLACES for _ in range(num_kept)]

    def mark(self, step: int, place: int) -> None:
        self._device.synchronize()
        self._ring[step % self.num_kept][place] = self._device.now()

    def between_ms(self, begin: tuple[int, int], end: tuple[int, int]) -> float:
        moments = [self._ring[step % self.num_kept][place] for step, place in (begin, end)]
        return (moments[1] - moments[0]) * 1000
