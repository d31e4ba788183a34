"""What the checks are made on: a CUDA device, or what stands in its place on a machine without one."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from shardtools.bench.consumers import Step, open_step
from shardtools.bench.counters.affinity import num_allowed_cpus
from shardtools.bench.counters.gpu import Nvml
from shardtools.bench.devices import Device
from shardtools.bench.devices.cuda import CudaDevice
from shardtools.bench.not_measured import Unknown
from shardtools.bench.spec import Consumer

_SPINNERS_A_CPU = 3
_SPIN_SECONDS = 30
"""Spinners end by themselves after it, should nobody be there to end them."""
_START_SECONDS = 0.5
_SPIN = f"import time\nuntil = time.monotonic() + {_SPIN_SECONDS}\nwhile time.monotonic() < until:\n    pass"
_PLANT_BYTES = 10**9


class NotRunError(Exception):
    """A check cannot be made here; the message says why."""


class Rig(Protocol):
    """A device with what is around it."""

    name: str
    device: Device
    pageable: Device
    """The same device, as batches in pageable memory meet it."""
    pins: bool
    """Whether a loader can pin its batches."""
    probe_bytes: int
    """Of a batch whose copy takes long enough to be timed."""
    seconds: float
    """Of the device, for one measured window."""
    rounds: int
    """Of a comparison of two loops."""

    def pause(self, seconds: float) -> None:
        """The host does nothing."""

    def model_step(self, batch: Any) -> Step:
        """A consumer as users have it, for a batch of images on the device."""

    def as_pinned(self, batches: Iterator[Any], num_ahead: int) -> Iterator[Any]:
        """A loader's batches as its pinning thread hands them on, which may have so many in work."""

    def host_memory(self) -> Mapping[str, int]:
        """As ``torch.cuda.host_memory_stats``."""

    def forget_peaks(self) -> None:
        """Peaks of ``host_memory`` count from now on."""

    def utilisation(self) -> AbstractContextManager["Utilisation"]:
        """Raises NotRunError where nothing tells it."""

    def busy_host(self) -> AbstractContextManager[None]:
        """Inside, every processor has more to do than it can."""

    def plant_bytes(self) -> int:
        """Of a pageable batch that takes far longer to copy than to compute."""

    def facts(self) -> dict[str, Any]:
        """Of the device, for the report."""


class Utilisation(Protocol):
    def read(self) -> float:
        """Per cent of the last moments in which something ran. Raises NotRunError where that is not told."""


class CudaRig:
    """The first CUDA device. Raises NoCudaError where there is none."""

    name = "cuda"
    pins = True
    probe_bytes = 64 << 20
    rounds = 4

    def __init__(self, seconds: float) -> None:
        self.device: Device = CudaDevice()
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self.pageable = self.device
        self.seconds = seconds

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def model_step(self, batch: Any) -> Step:
        step = open_step(Consumer("model", device="cuda"), batch, self.device)
        assert step is not None
        return step

    def as_pinned(self, batches: Iterator[Any], num_ahead: int) -> Iterator[Any]:
        return batches

    def host_memory(self) -> Mapping[str, int]:
        if not hasattr(torch.cuda, "host_memory_stats"):
            raise NotRunError("this torch has no torch.cuda.host_memory_stats")
        stats = torch.cuda.host_memory_stats()
        if "active_bytes.peak" not in stats:
            raise NotRunError("torch.cuda.host_memory_stats of this torch has no active_bytes")
        return stats

    def forget_peaks(self) -> None:
        torch.cuda.reset_peak_host_memory_stats()

    @contextmanager
    def utilisation(self) -> Iterator[Utilisation]:
        try:
            library = Nvml()
        except Unknown as unknown:
            raise NotRunError(str(unknown)) from None
        try:
            yield _NvmlUtilisation(library, _uuid())
        except Unknown as unknown:
            raise NotRunError(str(unknown)) from None
        finally:
            library.close()

    @contextmanager
    def busy_host(self) -> Iterator[None]:
        spinners: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(_SPINNERS_A_CPU * num_allowed_cpus()):
                spinners.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", _SPIN]))
            time.sleep(_START_SECONDS)
            yield
        finally:
            for spinner in spinners:
                spinner.kill()
            for spinner in spinners:
                spinner.wait()

    def plant_bytes(self) -> int:
        """An eighth of what is free on either side at most: the batch, its copies ahead of the device, and what others need."""
        import psutil

        free_bytes = min(psutil.virtual_memory().available, torch.cuda.mem_get_info(0)[0])
        return min(_PLANT_BYTES, int(free_bytes) // 8)

    def facts(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(0)
        return {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
        }


def _uuid() -> str | None:
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


class _NvmlUtilisation:
    def __init__(self, library: Nvml, uuid: str | None) -> None:
        self._library = library
        gpus = library.gpus()
        found = [gpu.index for gpu in gpus if gpu.uuid == uuid]
        if not found and len(gpus) > 1:
            raise NotRunError("NVML and CUDA do not agree on which accelerator this is")
        self._index = found[0] if found else 0

    def read(self) -> float:
        percent = self._library.read(self._index).util_pct
        if percent is None:
            raise NotRunError("NVML does not tell the utilisation of this accelerator, as of one that is cut into instances")
        return percent
