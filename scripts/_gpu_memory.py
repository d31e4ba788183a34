"""Checks of page-locked memory: what it takes, and which batches never reach it."""

from typing import Any

import torch
from _gpu_loops import BATCH, PREFETCH, WORKERS, Outcome, Patterns, Plan, computing, loaded, windowed
from _gpu_rig import Rig

from shardtools.bench.prediction import Batch, Probe, predict
from shardtools.bench.spec import Copy, Settings
from shardtools.bench.trial._pinning import pinning

_SIZES = (3000, (3 << 20) + 1, 4 << 20, (5 << 20) + 1)
_ROUNDED = (4096, 4 << 20, 4 << 20, 8 << 20)
_SAMPLE_BYTES = 3 << 17


def rounding(rig: Rig) -> Outcome:
    """A pinned tensor takes the next power of two."""
    got = []
    for size in _SIZES:
        before = _active_bytes(rig)
        kept = rig.device.pinned_copy(torch.zeros(size, dtype=torch.uint8))
        got.append(rig.host_memory()["active_bytes.current"] - before)
        del kept
    return Outcome(f"{list(_SIZES)} bytes take {list(_ROUNDED)}", {"taken": got}, got == list(_ROUNDED))


def peaks(rig: Rig) -> Outcome:
    """A loader's pinned batches never take more than a trial foresees: (W·P + 2) of them, and those an ``async`` loop still copies from."""
    batch = Batch.of(torch.empty(BATCH * _SAMPLE_BYTES, dtype=torch.uint8), BATCH)
    one, settings = batch.pinned_bytes, Settings(WORKERS, PREFETCH, pin_memory=True)
    copies: tuple[Copy, ...] = ("blocking", "async")
    bounds = {copy: predict(Probe(batch, 0, 0, 0), settings, copy).pinned_bound_bytes for copy in copies}
    got: dict[str, Any] = {copy: _peak(rig, copy) for copy in bounds}
    is_right = all(one <= got[copy] <= bound for copy, bound in bounds.items())
    return Outcome(f"at least {one} bytes, at most {bounds['blocking']} blocking and {bounds['async']} async", got, is_right)


def _peak(rig: Rig, copy: Copy) -> int:
    before = _active_bytes(rig)
    rig.forget_peaks()
    with loaded(rig, Patterns((_SAMPLE_BYTES,))) as batches:
        pinned = rig.as_pinned(batches, WORKERS * PREFETCH)
        windowed(rig, pinned, Plan(computing(rig.device, 2.0), copy, num_workers=WORKERS))
        return rig.host_memory()["active_bytes.peak"] - before


def _active_bytes(rig: Rig) -> int:
    """torch takes memory back that was copied from when it gives out memory the next time, and only then."""
    rig.device.synchronize()
    rig.device.pinned_copy(torch.zeros(1))
    return rig.host_memory()["active_bytes.current"]


class Bare:
    """A batch of a user's own type."""

    def __init__(self, samples: list[Any]) -> None:
        self.image = torch.stack(samples)


class Pinning(Bare):
    """The same with the advice taken."""

    def pin_memory(self) -> "Pinning":
        if torch.cuda.is_available():
            self.image = self.image.pin_memory()
        return self


def _named(samples: list[Any]) -> dict[str, Any]:
    return {"image": torch.stack(samples)}


def custom(rig: Rig) -> Outcome:
    """A batch type without ``pin_memory()`` stays pageable without a word; it is found, and the fix that is advised works."""
    got: dict[str, Any] = {}
    for name, collate in {"dict": _named, "bare": Bare, "pinning": Pinning}.items():
        with loaded(rig, Patterns((1 << 10,)), collate=collate) as batches:
            found = pinning(next(batches), rig.device, is_asked=True)
        got[name] = {key: found[key] for key in ("num_pinned", "custom_types", "advice")}
    advice = got["bare"]["advice"] or ""
    is_right = all(got[name]["num_pinned"] == 1 and got[name]["advice"] is None for name in ("dict", "pinning"))
    is_right &= got["bare"]["num_pinned"] == 0 and got["bare"]["custom_types"] == {"batch": "Bare"}
    is_right &= "Bare" in advice and "pin_memory()" in advice
    return Outcome("dict and pinning: 1 tensor pinned, no advice; bare: none pinned, named, and pin_memory() advised", got, is_right)
