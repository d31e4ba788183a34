"""One CUDA device: the first that this process may see.

Source: the notes on CUDA semantics of torch (asynchronous execution, streams, ``Tensor.record_stream``, pinned memory).
"""

import time
from contextlib import AbstractContextManager
from typing import Any

import torch

from shardtools.bench.devices.missing import require_cuda
from shardtools.bench.leaves import Leaf, leaves, moved

_CALIBRATION_CYCLES = 20_000_000
_NUM_CALIBRATIONS = 3


class CudaDevice:
    """Nothing of CUDA is begun by opening it: a loader forks its workers before, and a fork of a process that uses CUDA cannot use it."""

    name = "cuda"
    has_copies = True

    def __init__(self) -> None:
        require_cuda()
        self._device = torch.device("cuda", 0)
        self.target = str(self._device)
        self._cycles_per_ms: float | None = None

    def now(self) -> float:
        return time.perf_counter()

    def main_stream(self) -> "torch.cuda.Stream":
        return torch.cuda.current_stream(self._device)

    def side_stream(self) -> "torch.cuda.Stream":
        return torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def on(self, stream: "torch.cuda.Stream") -> AbstractContextManager[Any]:
        return torch.cuda.stream(stream)

    def copied(self, batch: Any, non_blocking: bool) -> Any:
        return moved(batch, self._device, non_blocking)

    def wait(self, waiting: "torch.cuda.Stream", other: "torch.cuda.Stream") -> None:
        waiting.wait_stream(other)

    def hold(self, batch: Any, stream: "torch.cuda.Stream") -> None:
        for leaf in leaves(batch):
            if leaf.tensor.is_cuda:
                leaf.tensor.record_stream(stream)

    def busy(self, milliseconds: float) -> None:
        """A kernel that counts cycles; how many make a millisecond is measured once, on this device as it is."""
        if milliseconds > 0:
            torch.cuda._sleep(int(milliseconds * self._calibrated()))  # type: ignore[no-untyped-call]

    def _calibrated(self) -> float:
        if self._cycles_per_ms is None:
            torch.cuda._sleep(_CALIBRATION_CYCLES)  # type: ignore[no-untyped-call]  # clocks rise under load
            rates = []
            for _ in range(_NUM_CALIBRATIONS):
                begin, end = self.new_mark(), self.new_mark()
                self.record(begin)
                torch.cuda._sleep(_CALIBRATION_CYCLES)  # type: ignore[no-untyped-call]
                self.record(end)
                end.synchronize()
                rates.append(_CALIBRATION_CYCLES / self.between_ms(begin, end))
            self._cycles_per_ms = sorted(rates)[_NUM_CALIBRATIONS // 2]
        return self._cycles_per_ms

    def new_mark(self) -> "torch.cuda.Event":
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def record(self, mark: "torch.cuda.Event") -> None:
        mark.record(torch.cuda.current_stream(self._device))

    def wait_for(self, mark: "torch.cuda.Event") -> None:
        mark.synchronize()

    def between_ms(self, begin: "torch.cuda.Event", end: "torch.cuda.Event") -> float:
        elapsed: float = begin.elapsed_time(end)
        return elapsed

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def is_pinned(self, leaf: Leaf) -> bool:
        return leaf.tensor.is_pinned()

    def pinned_copy(self, tensor: Any) -> Any:
        return tensor.pin_memory()
