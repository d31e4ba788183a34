"""The consumer without a loader: G on a batch that is on the device, H on one that must be brought there each step."""

import statistics
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch

from shardtools.bench.consumers import Step
from shardtools.bench.devices import Device
from shardtools.bench.leaves import leaves, mapped
from shardtools.bench.spec import Copy
from shardtools.bench.trial._steps import Loop

_WARM_STEPS = 3
_FEWEST_STEPS = 10
_MOST_STEPS = 2000
_SECONDS = 0.4
_COPY_BYTES = 64 << 20
_QUICK_COPY_S = 0.005
_NUM_COPIES = 5


def kept_copy(batch: Any, device: Device) -> Any:
    """A copy of a loaded batch outside shared memory, each tensor pinned if it was. Objects of own types are kept as they are."""
    pinned = {id(leaf.tensor) for leaf in leaves(batch) if device.is_pinned(leaf)}
    return mapped(batch, lambda tensor: device.pinned_copy(tensor) if id(tensor) in pinned else tensor.clone())


def resident_step_s(device: Device, step: Step, on_device: Any) -> float:
    """Seconds a step of G, no loader and no copy."""
    return _step_s(device, Loop(device, step, None), on_device)


def copied_step_s(device: Device, step: Step, copy: Copy, on_host: Any) -> float:
    """Seconds a step of H, no loader but the copy."""
    return _step_s(device, Loop(device, step, copy), on_host)


def warmed(device: Device, step: Step, on_device: Any) -> None:
    """Contexts are made, kernels chosen and memory taken before anything is timed."""
    for _ in range(_WARM_STEPS):
        step(on_device)
    device.synchronize()


def _step_s(device: Device, loop: Loop, batch: Any) -> float:
    steps = loop.consumed(repeat(batch))
    _timed(device, steps, _WARM_STEPS)
    guess = _timed(device, steps, _WARM_STEPS) / _WARM_STEPS
    num_steps = int(min(max(_SECONDS / max(guess, 1e-9), _FEWEST_STEPS), _MOST_STEPS))
    return _timed(device, steps, num_steps) / num_steps


def _timed(device: Device, steps: Iterator[Any], num_steps: int) -> float:
    device.synchronize()
    began = device.now()
    for _ in range(num_steps):
        next(steps)
    device.synchronize()
    return device.now() - began


def h2d_ceilings(device: Device, batch_bytes: int) -> dict[str, float]:
    """``pinned_GBps`` and ``pageable_GBps``, 10^9 bytes a second: the best that copies of one tensor reach, while the host waits.

    It is as large as a batch, and larger while that is quick, for small copies tell how long they take to begin.
    """
    pageable = torch.ones(max(1, batch_bytes), dtype=torch.uint8)
    while pageable.numel() < _COPY_BYTES and _copy_s(device, pageable, 1) < _QUICK_COPY_S:
        pageable = torch.ones(4 * pageable.numel(), dtype=torch.uint8)
    kinds = {"pinned_GBps": device.pinned_copy(pageable), "pageable_GBps": pageable}
    return {name: tensor.numel() / _copy_s(device, tensor, _NUM_COPIES) / 1e9 for name, tensor in kinds.items()}


def _copy_s(device: Device, tensor: torch.Tensor, num_times: int) -> float:
    """Seconds of the quickest."""
    times = []
    for _ in range(num_times):
        device.synchronize()
        began = device.now()
        device.copied(tensor, non_blocking=False)
        device.synchronize()
        times.append(device.now() - began)
    return max(1e-9, min(times))


def pin_ms(device: Device, batch: Any, num_times: int = 5) -> float:
    """Milliseconds to copy a batch into page-locked memory, as the loader's pinning thread does; the median."""
    times = []
    for _ in range(num_times + 1):
        began = device.now()
        for leaf in leaves(batch):
            device.pinned_copy(leaf.tensor)
        times.append((device.now() - began) * 1000)
    return statistics.median(times[1:])  # the first takes memory from the system
