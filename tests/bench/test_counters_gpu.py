"""Accelerators are counted as NVML tells them, and what it does not tell has a reason: stops zeros that look like an idle GPU."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shardtools.bench.counters.gpu import Gpu, GpuReading, Nvml
from shardtools.bench.environment import gpus
from shardtools.bench.not_measured import Unknown


class NVMLError(Exception):
    pass


class FakeNvml(ModuleType):
    """The calls of ``pynvml`` that are made; a call named in ``failing`` raises as NVML does."""

    NVMLError = NVMLError

    def __init__(self, count: int = 2, failing: tuple[str, ...] = (), texts: type = str) -> None:
        super().__init__("pynvml")
        self.count, self.failing, self.texts = count, failing, texts
        self.num_open = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*given: int) -> Any:
            if name in self.failing:
                raise NVMLError(f"{name} is Not Supported")
            return getattr(self, f"_{name}")(*given)

        return call

    def _nvmlInit(self) -> None:  # noqa: N802
        self.num_open += 1

    def _nvmlShutdown(self) -> None:  # noqa: N802
        self.num_open -= 1

    def _nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def _nvmlDeviceGetName(self, index: int) -> Any:  # noqa: N802
        return "H200" if self.texts is str else b"H200"

    def _nvmlDeviceGetUUID(self, index: int) -> Any:  # noqa: N802
        return f"GPU-{index}" if self.texts is str else f"GPU-{index}".encode()

    def _nvmlSystemGetDriverVersion(self) -> Any:  # noqa: N802
        return "570.1" if self.texts is str else b"570.1"

    def _nvmlDeviceGetMemoryInfo(self, index: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=1000 + index, used=300 + index)

    def _nvmlDeviceGetUtilizationRates(self, index: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=40 + index, memory=7)


def plant(monkeypatch: pytest.MonkeyPatch, library: FakeNvml | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library)


@pytest.mark.parametrize("texts", [str, bytes])
def test_what_nvml_tells(monkeypatch: pytest.MonkeyPatch, texts: type) -> None:
    library = FakeNvml(texts=texts)
    plant(monkeypatch, library)
    nvml = Nvml()
    assert nvml.gpus() == [Gpu(0, "GPU-0", "H200", 1000, "570.1"), Gpu(1, "GPU-1", "H200", 1001, "570.1")]
    assert nvml.read(1) == GpuReading(41.0, 301)
    nvml.close()
    assert library.num_open == 0


def test_what_it_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, FakeNvml(failing=("nvmlDeviceGetUtilizationRates",)))
    assert Nvml().read(0) == GpuReading(None, 300)


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        (None, "nvidia-ml-py is not installed"),
        (FakeNvml(failing=("nvmlInit",)), "nvmlInit is Not Supported"),
        (FakeNvml(failing=("nvmlDeviceGetCount",)), "nvmlDeviceGetCount is Not Supported"),
        (FakeNvml(count=0), "no accelerator"),
    ],
)
def test_no_library_and_no_accelerator_have_reasons(monkeypatch: pytest.MonkeyPatch, library: FakeNvml | None, reason: str) -> None:
    plant(monkeypatch, library)
    with pytest.raises(Unknown, match=reason):
        Nvml()
    assert library is None or library.num_open == 0


def test_the_ledger_closes_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(count=1)
    plant(monkeypatch, library)
    assert gpus() == [{"index": 0, "uuid": "GPU-0", "name": "H200", "memory_total_bytes": 1000, "driver": "570.1"}]
    assert library.num_open == 0
    library.failing = ("nvmlDeviceGetUUID",)
    with pytest.raises(Unknown):
        gpus()
    assert library.num_open == 0
