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
from shardtools.bench.trial._pinning import pinning  # noqa: E402
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
