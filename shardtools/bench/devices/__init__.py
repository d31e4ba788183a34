"""Where batches go: the processor alone, a CUDA device, or a simulated one that drives the same code.

A stream is a queue of work the device does in order; streams run beside each other. Marks are recorded on a stream and hold the
moment at which the device gets there, so a time between two marks is the device's own, whatever the host did meanwhile.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from shardtools.bench.devices.missing import NoCudaError, require_cuda, require_torch
from shardtools.bench.spec import TrialSpec

if TYPE_CHECKING:
    from shardtools.bench.leaves import Leaf

__all__ = ["Device", "NoCudaError", "open_device", "require_cuda", "require_torch"]


class Device(Protocol):
    """What runs a step. ``Any`` stands for the device's own streams and marks."""

    name: str
    has_copies: bool
    """Whether batches must be brought to it; where not, nothing of ``h2d_*`` exists."""
    target: str
    """As torch names the device that holds its tensors."""

    def now(self) -> float:
        """The host's clock in seconds."""

    def main_stream(self) -> Any:
        """The one that computes."""

    def side_stream(self) -> Any:
        """A new one beside it."""

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Inside, copies, marks and computation go to that stream."""

    def copied(self, batch: Any, non_blocking: bool) -> Any:
        """The batch on the device. Unless ``non_blocking``, and always from pageable memory, the host waits until it is there."""

    def wait(self, waiting: Any, other: Any) -> None:
        """What ``waiting`` gets from now on begins when all that ``other`` has now is done."""

    def hold(self, batch: Any, stream: Any) -> None:
        """The batch's memory is in use by that stream too: it is not given to others before the stream is done with it."""

    def busy(self, milliseconds: float) -> None:
        """Computation of exactly that length."""

    def new_mark(self) -> Any:
        """To be recorded, any number of times; the last one counts."""

    def record(self, mark: Any) -> None:
        """On the stream that is current."""

    def wait_for(self, mark: Any) -> None:
        """The host waits until the device has reached a mark."""

    def between_ms(self, begin: Any, end: Any) -> float:
        """Device time between two marks, which must both be reached: synchronize first."""

    def synchronize(self) -> None:
        """The host waits until the device has nothing left to do."""

    def is_pinned(self, leaf: "Leaf") -> bool | None:
        """Whether a tensor of a loaded batch lies in page-locked memory; None where that means nothing."""

    def pinned_copy(self, tensor: Any) -> Any:
        """Of the same contents in page-locked memory, as a loader's pinning thread would make it."""


def open_device(spec: TrialSpec) -> Device:
    """The device of a trial. Raises NoCudaError where there is no CUDA: never another instead."""
    name = spec.consumer.device
    if name == "cuda":
        from shardtools.bench.devices.cuda import CudaDevice

        return CudaDevice()
    if name == "sim":
        from shardtools.bench.devices.sim import RealClock, SimDevice

        return SimDevice(RealClock(), spec.consumer.sim_copy_gbps, pins=spec.settings.pin_memory)
    from shardtools.bench.devices.cpu import CpuDevice

    return CpuDevice()
