"""A simulated device with all a check asks of a real one, so that every check can be tried without one.

Waiting takes no time: the clock counts what this thread computes, and moves on where the host would wait. A dry run is therefore short,
and what else the machine does cannot disturb it.
"""

import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from _gpu_rig import NotRunError, Utilisation

from shardtools.bench.consumers import Step, open_step
from shardtools.bench.devices import Device
from shardtools.bench.devices.sim import SimDevice
from shardtools.bench.leaves import mapped
from shardtools.bench.spec import Consumer

_GBPS, _PAGEABLE_GBPS = 0.2, 0.1
_STEP_MS = 5.0
_LOAD = 3.0
_SAMPLE_SECONDS = 0.5


class CpuTimeClock:
    """Seconds of this thread's processor time, times ``load``, and of waiting, which is skipped."""

    def __init__(self) -> None:
        self.load = 1.0
        self._now = 0.0
        self._cpu = time.thread_time()

    def now(self) -> float:
        cpu = time.thread_time()
        self._now += (cpu - self._cpu) * self.load
        self._cpu = cpu
        return self._now

    def until(self, moment: float) -> None:
        self._now = max(self.now(), moment)


class WatchedDevice(SimDevice):
    """Remembers when it was busy and what was pinned."""

    def __init__(self, clock: CpuTimeClock, copy_gbps: float = _GBPS) -> None:
        super().__init__(clock, copy_gbps)
        self.spans: list[tuple[float, float]] = []
        self.pinned = {"active_bytes.current": 0, "active_bytes.peak": 0}

    def busy(self, milliseconds: float) -> None:
        super().busy(milliseconds)
        end = self._current.free_at
        self.spans.append((end - milliseconds / 1000, end))

    def pinned_copy(self, tensor: Any) -> Any:
        made, num_bytes = super().pinned_copy(tensor), 1 << (tensor.nbytes - 1).bit_length()
        self._count(num_bytes)
        weakref.finalize(made, self._count, -num_bytes)
        return made

    def _count(self, num_bytes: int) -> None:
        self.pinned["active_bytes.current"] += num_bytes
        self.pinned["active_bytes.peak"] = max(self.pinned.values())


class SimRig:
    """In the place of ``CudaRig``."""

    name = "sim"
    pins = False
    probe_bytes = 1 << 20
    rounds = 1

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._clock = CpuTimeClock()
        self._watched = WatchedDevice(self._clock)
        self.device: Device = self._watched
        self.pageable: Device = SimDevice(self._clock, _PAGEABLE_GBPS, pins=False)

    def pause(self, seconds: float) -> None:
        self._clock.until(self._clock.now() + seconds)

    def model_step(self, batch: Any) -> Step:
        step = open_step(Consumer("sim", step_ms=_STEP_MS, device="sim"), batch, self.device)
        assert step is not None
        return step

    def as_pinned(self, batches: Iterator[Any], num_ahead: int) -> Iterator[Any]:
        ahead: deque[Any] = deque()
        for batch in batches:
            ahead.append(mapped(batch, self.device.pinned_copy))
            if len(ahead) >= num_ahead:
                yield ahead.popleft()

    def host_memory(self) -> Mapping[str, int]:
        return self._watched.pinned

    def forget_peaks(self) -> None:
        self._watched.pinned["active_bytes.peak"] = self._watched.pinned["active_bytes.current"]

    @contextmanager
    def utilisation(self) -> Iterator[Utilisation]:
        yield self

    def read(self) -> float:
        now = self._clock.now()
        if now < _SAMPLE_SECONDS:
            raise NotRunError("the simulated device has not run for long enough")
        since = now - _SAMPLE_SECONDS
        busy_s = sum(max(0.0, min(end, now) - max(begin, since)) for begin, end in self._watched.spans)
        return 100 * busy_s / _SAMPLE_SECONDS

    @contextmanager
    def busy_host(self) -> Iterator[None]:
        self._clock.now()
        self._clock.load = _LOAD
        try:
            yield
        finally:
            self._clock.now()
            self._clock.load = 1.0

    def plant_bytes(self) -> int:
        return 4_000_000

    def facts(self) -> dict[str, Any]:
        return {"copy_gbps": _GBPS, "pageable_gbps": _PAGEABLE_GBPS}
