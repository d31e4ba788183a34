"""Accelerators by NVML: how much of the time a kernel ran, and memory in use.

Source: NVML API reference, nvmlDeviceGetUtilizationRates: the share of the last sample period (1/6 to 1 s) in which at least
one kernel ran. A kernel on one multiprocessor counts as much as one on all.
"""

import importlib
import warnings
from dataclasses import asdict, dataclass
from typing import Any

from shardtools.bench.not_measured import Unknown


@dataclass(frozen=True)
class Gpu:
    """One accelerator, as NVML numbers them: CUDA may number them otherwise, ``uuid`` tells which is which."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int | None
    driver: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class GpuReading:
    util_pct: float | None
    """None where the accelerator is cut into instances (MIG), which NVML does not count so."""
    memory_used_bytes: int | None


@dataclass(frozen=True)
class GpuUse:
    """What ``nvidia-smi dmon`` shows; None where the accelerator does not tell."""

    index: int
    power_w: float | None
    temperature_c: float | None
    sm_pct: float | None
    memory_pct: float | None
    """Of the time memory was read or written, not of its size."""
    encoder_pct: float | None
    decoder_pct: float | None
    memory_mhz: float | None
    processor_mhz: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Nvml:
    """The library, opened. Raises Unknown where there is no accelerator it knows.

    Every call is to be made by one thread; ``close`` gives the library back.
    """

    def __init__(self) -> None:
        self._library = _load()
        try:
            self._library.nvmlInit()
        except self._library.NVMLError as error:
            raise Unknown(f"NVML says: {_sentence(error)}") from None
        try:
            self._handles = self._ask(lambda: [self._handle(index) for index in range(self._library.nvmlDeviceGetCount())])
            if not self._handles:
                raise Unknown("NVML finds no accelerator")
        except Unknown:
            self.close()
            raise

    def gpus(self) -> list[Gpu]:
        return [self._ask(lambda i=index: self._describe(i)) for index in range(len(self._handles))]

    def read(self, index: int) -> GpuReading:
        """Never raises: what is not told is None."""
        handle, library = self._handles[index], self._library
        return GpuReading(
            self._or_none(lambda: float(library.nvmlDeviceGetUtilizationRates(handle).gpu)),
            self._or_none(lambda: int(library.nvmlDeviceGetMemoryInfo(handle).used)),
        )

    def use(self, index: int) -> GpuUse:
        """Never raises: what is not told is None."""
        handle, library = self._handles[index], self._library
        return GpuUse(
            index,
            self._or_none(lambda: library.nvmlDeviceGetPowerUsage(handle) / 1000),
            self._or_none(lambda: float(library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))),
            self._or_none(lambda: float(library.nvmlDeviceGetUtilizationRates(handle).gpu)),
            self._or_none(lambda: float(library.nvmlDeviceGetUtilizationRates(handle).memory)),
            self._or_none(lambda: float(library.nvmlDeviceGetEncoderUtilization(handle)[0])),
            self._or_none(lambda: float(library.nvmlDeviceGetDecoderUtilization(handle)[0])),
            self._or_none(lambda: float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM))),
            self._or_none(lambda: float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))),
        )

    def close(self) -> None:
        self._or_none(self._library.nvmlShutdown)

    def _handle(self, index: int) -> Any:
        return self._library.nvmlDeviceGetHandleByIndex(index)

    def _describe(self, index: int) -> Gpu:
        handle, library = self._handles[index], self._library
        total = self._or_none(lambda: int(library.nvmlDeviceGetMemoryInfo(handle).total))
        texts = library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle), library.nvmlSystemGetDriverVersion()
        uuid, name, driver = (text.decode() if isinstance(text, bytes) else str(text) for text in texts)
        return Gpu(index, uuid, name, total, driver)

    def _ask(self, call: Any) -> Any:
        try:
            return call()
        except self._library.NVMLError as error:
            raise Unknown(f"NVML says: {_sentence(error)}") from None

    def _or_none(self, call: Any) -> Any:
        try:
            return call()
        except self._library.NVMLError:
            return None


def _load() -> Any:
    with warnings.catch_warnings():
        # Another package of the same name warns that it is outdated.
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("pynvml")
        except ImportError:
            raise Unknown("nvidia-ml-py is not installed") from None


def _sentence(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
