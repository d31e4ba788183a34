"""Checks of copies to the device: how fast, on which stream, beside what, and whether what arrives is right."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
from _gpu_loops import COPIES, Outcome, Plan, Ran, computing, copied_ms, loaded, nothing, pinned_batch, windowed
from _gpu_rig import Rig
from torch.utils.data import Dataset

from shardtools.bench.devices import Device
from shardtools.bench.spec import Copy
from shardtools.bench.trial._marks import COMPUTE_BEGIN, COMPUTE_END, COPY_BEGIN, COPY_END, DeviceMarks
from shardtools.bench.trial._pinning import pinning
from shardtools.bench.trial._static import copied_step_s, resident_step_s
from shardtools.bench.trial._steps import Loop

COPY_MS, COMPUTE_MS, QUICK_MS = 5.0, 8.0, 2.0
_ROUNDING_MS = 0.05
"""Of differences of marks, which come as 32-bit floats of milliseconds."""
_DATA_STEPS = 96
_SLOW_MS, _INSTANT_MS = 4.0, 0.0
"""A slow computation still reads a batch when memory is asked for again; an instant one would read it before it has come."""
_PLANT_MS = 20.0
_PLANT_PIECES = 4


def ceilings(rig: Rig) -> Outcome:
    """Pinned copies are faster than pageable ones and leave the host free; pageable ones keep it waiting."""
    size = 4 * rig.probe_bytes
    host = torch.zeros(size, dtype=torch.uint8)
    pinned = rig.device.pinned_copy(host)
    gbps = {
        "pinned_gbps": size / copied_ms(rig.device, pinned, non_blocking=True) / 1e6,
        "pageable_gbps": size / copied_ms(rig.pageable, host, non_blocking=False) / 1e6,
    }
    waits = {"pinned_wait": _wait_share(rig.device, pinned), "pageable_wait": _wait_share(rig.pageable, host)}
    is_right = gbps["pinned_gbps"] > 1.1 * gbps["pageable_gbps"] and waits["pinned_wait"] < 0.5 < waits["pageable_wait"]
    expected = (
        "pinned 1.1 times as fast as pageable or more; the host waits for under half of a pinned copy, for over half of a pageable one"
    )
    return Outcome(expected, gbps | waits, is_right)


def _wait_share(device: Device, batch: Any) -> float:
    """Of the time a copy takes, the part in which a host that asked not to wait is kept."""
    device.copied(batch, non_blocking=True)
    device.synchronize()
    began = device.now()
    copied = device.copied(batch, non_blocking=True)
    launched = device.now()
    device.synchronize()
    del copied
    return (launched - began) / max(device.now() - began, 1e-9)


def streams(rig: Rig) -> Outcome:
    """Marks lie on the streams that work: copies and computations take what they take alone, and come in the order of the copy's kind."""
    batch = pinned_batch(rig, COPY_MS)
    alone_ms = copied_ms(rig.device, batch, non_blocking=True)
    got: dict[str, Any] = {"copy_alone_ms": alone_ms}
    is_right = True
    # Only where copies take longer does a computation that does not wait begin before its batch is there.
    cases: list[tuple[Copy, float]] = [*((copy, COMPUTE_MS) for copy in COPIES), ("prefetch-stream", QUICK_MS)]
    for copy, compute_ms in cases:
        seen = _moments(windowed(rig, repeat(batch), Plan(computing(rig.device, compute_ms), copy, is_timed=True)))
        got[f"{copy} {compute_ms:g} ms"] = seen
        is_right &= abs(seen["copy_ms"] / alone_ms - 1) < 0.25 and abs(seen["compute_ms"] / compute_ms - 1) < 0.1
        is_right &= seen["computes_early_ms"] <= _ROUNDING_MS and seen["backward_error_ms"] <= _ROUNDING_MS
        is_right &= seen["copies_beside"] > 0.9 if copy == "prefetch-stream" else seen["copies_beside"] == 0
    expected = (
        "copies as long as alone (25 %), computations as asked (10 %), none before its copy has ended; the next copy begins "
        "beside the computation with prefetch-stream (over 0.9 of steps), never else; times between marks in reverse order are negative"
    )
    return Outcome(expected, got, is_right)


def _moments(ran: Ran) -> dict[str, float]:
    """Compared by times from an earlier mark, so that none runs backward but the one that is looked at for it."""
    marks = ran.marks
    assert marks is not None
    steps = range(ran.facts.warm_steps, ran.facts.warm_steps + ran.facts.steps - 1)
    early, errors, num_beside, copies, computations = [0.0], [0.0], 0, [], []
    for i in steps:
        begin = (i, COPY_BEGIN)
        copied, computed = marks.between_ms(begin, (i, COPY_END)), marks.between_ms(begin, (i, COMPUTE_END))
        following = marks.between_ms(begin, (i + 1, COPY_BEGIN))
        starts = marks.between_ms(begin, (i, COMPUTE_BEGIN))
        early.append(copied - starts)
        errors.append(abs(marks.between_ms((i, COMPUTE_END), (i + 1, COPY_BEGIN)) - (following - computed)))
        num_beside += following < computed - _ROUNDING_MS
        copies.append(copied)
        computations.append(marks.between_ms((i, COMPUTE_BEGIN), (i, COMPUTE_END)))
    middle = len(copies) // 2
    return {
        "copy_ms": sorted(copies)[middle],
        "compute_ms": sorted(computations)[middle],
        "copies_beside": num_beside / len(copies),
        "computes_early_ms": max(early),
        "backward_error_ms": max(errors),
    }


def overlap(rig: Rig) -> Outcome:
    """1 - (T_both - max) / min of the times of copy and computation: 1 where one hides the other."""
    copy_ms, compute_ms, both = _step_times(rig)
    least, most = sorted((copy_ms, compute_ms))
    got: dict[str, Any] = {copy: 1 - (both[copy] - most) / least for copy in COPIES}
    is_right = got["blocking"] < 0.25 and got["async"] < 0.25 and got["prefetch-stream"] > 0.75
    return Outcome("blocking and async under 0.25, prefetch-stream over 0.75", got, is_right)


def exposed(rig: Rig) -> Outcome:
    """What a step with the copy takes longer than one without: all of the copy unless it has a stream of its own."""
    copy_ms, compute_ms, both = _step_times(rig)
    got: dict[str, Any] = {copy: both[copy] - compute_ms for copy in COPIES}
    is_whole = all(0.7 < got[copy] / copy_ms < 1.5 for copy in ("blocking", "async"))
    is_right = is_whole and got["prefetch-stream"] < 0.3 * copy_ms and got["async"] < 1.1 * got["blocking"]
    expected = "blocking and async 0.7 to 1.5 of the copy alone, async at most 1.1 of blocking, prefetch-stream under 0.3 of the copy"
    return Outcome(expected, {"copy_alone_ms": copy_ms, **got}, is_right)


def _step_times(rig: Rig) -> tuple[float, float, dict[Copy, float]]:
    """In milliseconds: the copy alone, the computation alone, and both by kind of copy."""
    device, batch = rig.device, pinned_batch(rig, COPY_MS)
    step = computing(device, COMPUTE_MS)
    compute_ms = resident_step_s(device, step, device.copied(batch, non_blocking=False)) * 1000
    both: dict[Copy, float] = {copy: copied_step_s(device, step, copy, batch) * 1000 for copy in COPIES}
    return copied_step_s(device, nothing, "async", batch) * 1000, compute_ms, both


class _Careless:
    """A device that does not do one thing it is told to, as training loops that forget it leave it."""

    def __init__(self, device: Device, forgotten: str) -> None:
        self._device = device
        self._forgotten = forgotten

    def __getattr__(self, name: str) -> Any:
        return _forget if name == self._forgotten else getattr(self._device, name)


def _forget(*_: Any) -> None:
    pass


def data(rig: Rig) -> Outcome:
    """Sums of what a step finds on the device, at once and long after the next copies were begun, against those of the host."""
    got = {
        "steps": _DATA_STEPS,
        "wrong": _num_wrong(rig, rig.device, _SLOW_MS),
        "wrong_at_once": _num_wrong(rig, rig.device, _INSTANT_MS),
        "wrong_without_hold": _num_wrong(rig, _Careless(rig.device, "hold"), _SLOW_MS),
        "wrong_at_once_without_wait": _num_wrong(rig, _Careless(rig.device, "wait"), _INSTANT_MS),
    }
    expected = "no sum of a step other than the host's; those without hold and wait only tell whether this run could show it"
    return Outcome(expected, got, got["wrong"] == got["wrong_at_once"] == 0)


def _num_wrong(rig: Rig, device: Any, compute_ms: float) -> int:
    """Memory that is given up is asked for again at once, in the same sizes."""
    sizes = [rig.probe_bytes // 16 * (1 + i % 3) for i in range(_DATA_STEPS)]
    sums: list[Any] = []

    def step(batch: Any) -> None:
        device.busy(compute_ms)
        sums.append(batch.sum(dtype=torch.int64))
        torch.full_like(batch, 255)

    def batches() -> Iterator[Any]:
        for i, size in enumerate(sizes):
            yield device.pinned_copy(torch.full((size,), 1 + i % 250, dtype=torch.uint8))

    for _ in Loop(device, step, "prefetch-stream", DeviceMarks(device, num_kept=16)).consumed(batches()):
        pass
    device.synchronize()
    expected = [size * (1 + i % 250) for i, size in enumerate(sizes)]
    return sum(int(found) != right for found, right in zip(sums, expected, strict=True))


class _Same(Dataset[Any]):
    """The same batch again and again, from memory: a loader that costs nothing."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, i: int) -> Any:
        return self._batch


def _first(samples: list[Any]) -> Any:
    return samples[0]


def plant(rig: Rig) -> Outcome:
    """A large pageable batch and a fast loader: the copy limits, and the figures must say so."""
    size = rig.plant_bytes() // _PLANT_PIECES
    batch = {f"part{i}": torch.zeros(size, dtype=torch.uint8) for i in range(_PLANT_PIECES)}
    device, step = rig.pageable, computing(rig.pageable, _PLANT_MS)
    resident = 1 / resident_step_s(device, step, device.copied(batch, non_blocking=False))
    copied = 1 / copied_step_s(device, step, "blocking", batch)
    with loaded(rig, _Same(batch), num_workers=0, collate=_first, pins=False) as batches:
        drained = windowed(rig, batches, Plan(None, None), device).rate
        looped = windowed(rig, batches, Plan(step, "blocking"), device).rate
    unpinned = len(pinning(batch, device, is_asked=True)["unpinned"])
    got = {"batch_bytes": size * _PLANT_PIECES, "G": resident, "H": copied, "L": drained, "F": looped, "unpinned": unpinned}
    is_right = copied / resident < 0.9 and drained >= 1.1 * copied and abs(looped / copied - 1) < 0.2 and unpinned == _PLANT_PIECES
    return Outcome(
        f"H/G under 0.9, L at least 1.1 H, F within 20 % of H (batches/s), {_PLANT_PIECES} tensors named as unpinned", got, is_right
    )
