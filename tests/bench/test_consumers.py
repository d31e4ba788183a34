"""Models train on what loaders deliver, and say plainly what they cannot train on; stops a consumer that only seems to compute."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from shardtools.bench import consumers  # noqa: E402
from shardtools.bench.consumers import SmallResNet, SmallTransformer, open_step  # noqa: E402
from shardtools.bench.devices import NoCudaError, open_device  # noqa: E402
from shardtools.bench.devices.cpu import CpuDevice  # noqa: E402
from shardtools.bench.devices.sim import RealClock, SimDevice, VirtualClock  # noqa: E402
from shardtools.bench.spec import Consumer, Layout, Settings, TrialSpec, Workload  # noqa: E402
from shardtools.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.train

MODEL = Consumer("model")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a trial; on a machine that others use, threads of one operation wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(batch: Any, kind: type, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Losses of a step repeated, from the model that was chosen."""
    losses: list[float] = []
    forward = kind.forward

    def watched(self: Any, data: Any) -> Any:
        loss = forward(self, data)
        losses.append(float(loss.detach()))
        return loss

    monkeypatch.setattr(kind, "forward", watched)
    torch.manual_seed(0)
    step = open_step(MODEL, batch, CpuDevice())
    assert step is not None
    for _ in range(8):
        step(batch)
    return losses


def test_images_train_a_resnet(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    losses = trained((images, torch.tensor([1, 2, 3, 4])), SmallResNet, monkeypatch)
    assert losses[-1] < losses[0]


def test_tokens_train_a_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = trained({"tokens": torch.randint(0, 200_000, (4, 16))}, SmallTransformer, monkeypatch)
    assert len(losses) == 8
    assert losses[-1] < losses[0]


def test_bytes_are_nothing_to_train_on() -> None:
    with pytest.raises(UsageError, match=r"got batch\[0\] \[90\] uint8, batch\[1\] \[4\] int64; give --decode, --model"):
        open_step(MODEL, (torch.zeros(90, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)), CpuDevice())


def test_a_factory_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_model")
    seen: list[Any] = []
    module.factory = lambda batch, target: seen.append((batch, target)) or seen.append  # type: ignore[attr-defined]
    module.wrong = lambda _, __: 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_model", module)
    step = open_step(Consumer("model", model="own_model:factory"), "batch", CpuDevice())
    assert step is not None
    step("next")
    assert seen == [("batch", torch.device("cpu")), "next"]
    for name, words in {"own_model:none": "AttributeError", "no_such_module:x": "ModuleNotFoundError", "own_model": "--model"}.items():
        with pytest.raises(UsageError, match=words):
            open_step(Consumer("model", model=name), "batch", CpuDevice())
    with pytest.raises(UsageError, match="to return a function of a batch, got int"):
        open_step(Consumer("model", model="own_model:wrong"), "batch", CpuDevice())


def test_a_simulated_device_takes_no_model() -> None:
    with pytest.raises(UsageError, match="--consumer sim"):
        open_step(MODEL, None, SimDevice(VirtualClock()))


def test_a_simulated_launch_costs_cpu_time_of_this_thread() -> None:
    import time

    step = open_step(Consumer("sim", step_ms=1.0, launch_cpu_ms=20.0), None, SimDevice(VirtualClock()))
    assert step is not None
    before = time.thread_time()
    step(None)
    assert time.thread_time() - before >= 0.020


def test_none_only_drains() -> None:
    assert open_step(Consumer("none"), None, CpuDevice()) is None


def test_the_real_clock_lasts() -> None:
    sim = SimDevice(RealClock())
    began = sim.now()
    sim.busy(200.0)
    assert sim.now() - began < 0.150, "asking for it takes no time"
    sim.synchronize()
    assert sim.now() - began >= 0.200


def test_no_cuda_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers.torch.cuda, "is_available", lambda: False)
    spec = TrialSpec(Layout("x", "files", "torch"), Workload(), Settings(), Consumer("sim", device="cuda"))
    with pytest.raises(NoCudaError, match="expected a CUDA device, got none") as caught:
        open_device(spec)
    assert caught.value.exit_code == 3
