"""Tensors of a batch are found wherever they lie and judged as the loader's pinning thread sees them; stops pageable tensors unnoticed."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from torch.utils.data import _utils  # noqa: E402

from shardtools.bench.devices.cpu import CpuDevice  # noqa: E402
from shardtools.bench.devices.sim import SimDevice, VirtualClock  # noqa: E402
from shardtools.bench.leaves import hidden_types, leaves, mapped, moved  # noqa: E402
from shardtools.bench.spec import Settings  # noqa: E402
from shardtools.bench.trial._pinning import pinning  # noqa: E402
from shardtools.bench.trial._safety import RefusedError, batch_facts, predicted, refuse_unsafe  # noqa: E402
from shardtools.bench.trial._static import kept_copy  # noqa: E402

pytestmark = pytest.mark.train

Pair = namedtuple("Pair", "left right")


def one() -> Any:
    return torch.zeros(3)


@dataclass
class Plain:
    image: Any
    label: int = 0


class Pins:
    def __init__(self) -> None:
        self.image = one()

    def pin_memory(self) -> "Pins":
        return self


class Slotted:
    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens = one()


def test_leaves_are_named_as_python_would_reach_them() -> None:
    batch = {"image": one(), "more": [one(), Pair(one(), "text")], "own": Plain(one()), "slotted": Slotted(), "pins": Pins(), "none": None}
    found = {leaf.path: leaf.is_reached for leaf in leaves(batch)}
    assert found == {
        "batch['image']": True,
        "batch['more'][0]": True,
        "batch['more'][1].left": True,
        "batch['own'].image": False,
        "batch['slotted'].tokens": False,
        "batch['pins'].image": True,
    }
    assert hidden_types(batch) == {"batch['own']": "Plain", "batch['slotted']": "Slotted"}


def test_the_pinning_thread_of_torch_reaches_what_we_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own function, with page-locked memory replaced by a note of who was asked."""
    asked: list[int] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, _=None: asked.append(id(self)) or self)
    batch = {"a": one(), "b": (one(), [one()]), "c": Pair(one(), one()), "own": Plain(one()), "s": Slotted(), "text": "x", "n": 3}
    _utils.pin_memory.pin_memory(batch)
    assert sorted(asked) == sorted(id(leaf.tensor) for leaf in leaves(batch) if leaf.is_reached)


def test_an_object_that_holds_itself_ends() -> None:
    loop = Plain(one())
    loop.label = loop  # type: ignore[assignment]
    assert [leaf.path for leaf in leaves(loop)] == ["batch.image"]


def test_mapped_keeps_the_shape_of_the_batch() -> None:
    batch = {"a": one(), "b": [Pair(one(), "x"), (one(),)]}
    doubled = mapped(batch, lambda tensor: tensor + 2)
    assert isinstance(doubled["b"][0], Pair)
    assert doubled["b"][0].right == "x"
    assert [leaf.tensor.tolist() for leaf in leaves(doubled)] == [[2.0] * 3] * 3


def test_own_types_move_by_their_own_to() -> None:
    class Moves(Plain):
        def to(self, device: Any) -> str:
            return f"on {device}"

    assert moved([Moves(one()), Plain(one())], "meta", True)[0] == "on meta"
    assert moved({"a": one()}, "meta", False)["a"].device.type == "meta"


def test_custom_types_are_told_with_the_remedy() -> None:
    found = pinning({"x": one(), "own": Plain(one())}, SimDevice(VirtualClock()), is_asked=True)
    assert (found["num_tensors"], found["num_pinned"], found["unpinned"]) == (2, 1, ["batch['own'].image"])
    assert found["custom_types"] == {"batch['own']": "Plain"}
    assert "Plain at batch['own'], which has no pin_memory()" in found["advice"]


def test_custom_types_are_told_without_an_accelerator_too() -> None:
    found = pinning([Plain(one())], CpuDevice(), is_asked=False)
    assert found["num_pinned"] is None
    assert found["unpinned"] is None
    assert found["custom_types"] == {"batch[0]": "Plain"}


def test_pageable_leaves_are_named() -> None:
    found = pinning([one()] * 12, SimDevice(VirtualClock(), pins=False), is_asked=True)
    assert found["unpinned"] == [f"batch[{i}]" for i in range(10)]
    assert found["advice"].endswith("batch[9] and 2 more")
    assert pinning([one()], SimDevice(VirtualClock(), pins=False), is_asked=False)["advice"] is None
    assert pinning([one()], SimDevice(VirtualClock()), is_asked=True)["advice"] is None


def test_a_kept_copy_shares_no_memory() -> None:
    batch = [torch.zeros(8).share_memory_(), torch.ones(2, dtype=torch.int64)]
    kept = kept_copy(batch, SimDevice(VirtualClock()))
    assert not kept[0].is_shared()
    assert [tensor.tolist() for tensor in kept] == [tensor.tolist() for tensor in batch]


def test_predictions_follow_the_published_bound() -> None:
    """One tensor of 5,000 bytes takes two pages; W = 3, P = 4: 12 queued, one returned, one held."""
    facts = batch_facts([torch.zeros(5000, dtype=torch.uint8), torch.zeros(1)])
    assert facts == {"bytes": 5004, "tensors": 2, "shm_bytes": 12288, "pinned_bytes": 8192 + 4}
    found = predicted(facts, Settings(num_workers=3, prefetch_factor=4), "async")
    assert found == {"shm_bytes": 13 * 12288, "shm_bound_bytes": 14 * 12288, "fds": 28, "pinned_bound_bytes": 0}
    none = {"shm_bytes": 0, "shm_bound_bytes": 0, "fds": 0, "pinned_bound_bytes": 0}
    assert predicted(facts, Settings(num_workers=0), "async") == none


@pytest.mark.parametrize(("copy", "num_pinned"), [("blocking", 14), ("async", 22), ("prefetch-stream", 22)])
def test_pinned_batches_are_those_of_the_queue_and_those_that_are_still_copied(copy: Any, num_pinned: int) -> None:
    """Blocks of a power of two: 4,096 of 4,096 bytes, 8,192 of one more, none of nothing. The host may be 8 steps ahead."""
    facts = batch_facts([torch.zeros(size, dtype=torch.uint8) for size in (4096, 4097, 0)])
    found = predicted(facts, Settings(3, 4, pin_memory=True), copy)
    assert found["pinned_bound_bytes"] == num_pinned * (4096 + 8192)
    assert predicted(facts, Settings(0, pin_memory=True), "blocking")["pinned_bound_bytes"] == 2 * (4096 + 8192)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardtools.bench.trial import _safety

    batch = {"bytes": 10, "tensors": 4, "shm_bytes": 10}
    monkeypatch.setattr(_safety.resource, "getrlimit", lambda _: (100, 100))

    def refuse(shm: int, fds: int, pinned: int, free: int | None, usable: int | None) -> None:
        refuse_unsafe({"shm_bound_bytes": shm, "fds": fds, "pinned_bound_bytes": pinned}, batch, free, usable)

    refuse(80, 80, 60, 100, 200)
    refuse(80, 80, 60, None, None)
    with pytest.raises(RefusedError, match="not run: shared memory 81 B of 100 B free"):
        refuse(81, 0, 0, 100, 1000)
    with pytest.raises(RefusedError, match="not run: 81 file descriptors of 100"):
        refuse(0, 81, 0, 100, 1000)
    with pytest.raises(RefusedError, match="not run: batches take 141 B of 200 B usable memory"):
        refuse(80, 0, 61, 100, 200)
