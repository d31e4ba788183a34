"""What a trial looks at when its window is over: the floor of a wait, a second epoch, the end, and the consumer without a loader."""

import statistics
import time
from typing import Any

import torch
from torch.utils.data import IterableDataset, Subset

from shardtools.bench.consumers import Step
from shardtools.bench.trial._epochs import Epochs
from shardtools.bench.trial._figures import NO_ACCELERATOR, NO_INSTRUMENTS, shares
from shardtools.bench.trial._running import Running, trial_loader
from shardtools.bench.trial._static import copied_step_s, h2d_ceilings, pin_ms, resident_step_s
from shardtools.bench.window import WindowFacts

_SOON_SECONDS = 1.0
"""An epoch is read to its end, to see the next one begin, where that takes no longer."""
_MOST_SLEEP_SECONDS = 3.0
_FEWEST_FLOOR_BATCHES = 2
_NO_CONSUMER = "the consumer `none` only drains"


def look(running: Running, facts: WindowFacts, step: Step | None, on_host: Any, on_device: Any) -> None:
    """Fills ``startup``, ``ipc_floor_ms``, ``rates``, ``h2d_exposed_ms``, ``au``, ``shares``, ``pin_ms``, ``h2d_ceilings`` and
    peaks of the device.

    The consumer alone comes last, when no worker takes part of a core.
    """
    found, first = running.found, running.epochs.starts[0]
    found["ipc_floor_ms"] = _ipc_floor_ms(running, facts)
    second = _second_epoch_s(running, facts)
    teardown_s = running.epochs.end()
    if second is None and running.spec.mode == "timeline":
        second = _small_second_epoch_s(running)
    if second is None:
        running.reasons.add("startup.epoch2_s", "the epoch is too long to be read to its end before the next one begins")
    found["startup"] = {"iter_s": first.iter_s, "first_batch_s": first.first_batch_s, "epoch2_s": second, "teardown_s": teardown_s}
    _consumer_alone(running, facts, step, on_host, on_device)
    _ceilings(running)
    found["shares"] = shares(found["steps"], found["h2d_exposed_ms"], facts, running.reasons)
    _device_peaks(running)


def _ipc_floor_ms(running: Running, facts: WindowFacts) -> float | None:
    """A batch that is known to lie ready still costs its way from the worker: the median of ``next()`` on a full queue."""
    settings = running.spec.settings
    queue = settings.num_workers * settings.prefetch_factor
    if running.spec.mode != "timeline" or not queue:
        running.reasons.add("ipc_floor_ms", NO_INSTRUMENTS if queue else "there are no workers, so nothing is sent")
        return None
    fill_s = 2 * queue * facts.wall_s / facts.steps + 0.1
    if fill_s > _MOST_SLEEP_SECONDS:
        running.reasons.add("ipc_floor_ms", f"the queue takes {fill_s:.0f} s to fill, longer than is waited for")
        return None
    batches, times, now = running.epochs.rest(), [], running.device.now
    time.sleep(fill_s)
    for _ in range(queue):
        began = now()
        if next(batches, None) is None:
            break
        times.append((now() - began) * 1000)
    if len(times) < _FEWEST_FLOOR_BATCHES:
        running.reasons.add("ipc_floor_ms", "the epoch was over")
        return None
    return statistics.median(times)


def _second_epoch_s(running: Running, facts: WindowFacts) -> float | None:
    """From ``iter()`` to the first batch of a second epoch, when the first was complete. None where that takes too long."""
    epochs = running.epochs
    if len(epochs.starts) == 1:
        if not _ends_soon(running, facts):
            return None
        for _ in epochs.rest():
            pass
        epochs.begin()
    return epochs.starts[1].iter_s + epochs.starts[1].first_batch_s


def _ends_soon(running: Running, facts: WindowFacts) -> bool:
    if running.side.num_samples is None:
        return False
    batch_size = running.spec.workload.batch_size
    num_left = -(-running.side.num_samples // batch_size) - facts.warm_steps - facts.steps
    return num_left * facts.wall_s / facts.steps <= _SOON_SECONDS


def _small_second_epoch_s(running: Running) -> float | None:
    """Of a loader like the one measured, over two batches a worker of its dataset. None for datasets that cannot be cut."""
    dataset, workload = running.side.dataset, running.spec.workload
    if isinstance(dataset, IterableDataset):
        return None
    num_small = 2 * max(running.spec.settings.num_workers, 1) * workload.batch_size
    kwargs = {name: value for name, value in running.side.loader_kwargs.items() if name not in ("sampler", "shuffle")}
    small = trial_loader(running.spec, Subset(dataset, range(min(num_small, len(dataset)))), kwargs, running.traffic)
    epochs = Epochs(small, running.device.now)
    for _ in epochs.begin()[1]:
        pass
    epochs.begin()
    epochs.end()
    return epochs.starts[1].iter_s + epochs.starts[1].first_batch_s


def _consumer_alone(running: Running, facts: WindowFacts, step: Step | None, on_host: Any, on_device: Any) -> None:
    """G and H, as samples a second at full batches; F is the trial's own rate, L that of a trial that drains."""
    found, spec, device, reasons = running.found, running.spec, running.device, running.reasons
    rates: dict[str, float | None] = {"F": facts.throughput, "G": None, "H": None, "L": None}
    found |= {"rates": rates, "h2d_exposed_ms": None, "au": None, "pin_ms": None}
    if step is None:
        rates |= {"F": None, "L": facts.throughput}
        for metric in ("rates.F", "rates.G", "rates.H", "h2d_exposed_ms", "au"):
            reasons.add(metric, _NO_CONSUMER)
    else:
        reasons.add("rates.L", "the loader's own rate is measured in trials with the consumer `none`")
        resident_s = resident_step_s(device, step, on_device)
        resident = found["batch"]["samples"] / resident_s
        rates["G"], found["au"] = resident, facts.throughput / resident
        if device.has_copies:
            copied_s = copied_step_s(device, step, spec.consumer.copy, on_host)
            rates["H"] = found["batch"]["samples"] / copied_s
            found["h2d_exposed_ms"] = (copied_s - resident_s) * 1000
        else:
            reasons.add("rates.H", NO_ACCELERATOR)
            reasons.add("h2d_exposed_ms", NO_ACCELERATOR)
    if device.name == "cuda" and on_host is not None:
        found["pin_ms"] = pin_ms(device, on_host)
    else:
        reasons.add("pin_ms", NO_ACCELERATOR if device.name != "cuda" else _NO_CONSUMER)


def _ceilings(running: Running) -> None:
    """What copies could reach: beside the one timeline of a side, since it takes a moment."""
    found, device, spec = running.found, running.device, running.spec
    found["h2d_ceilings"] = None
    if not device.has_copies:
        running.reasons.add("h2d_ceilings", NO_ACCELERATOR)
    elif spec.mode != "timeline":
        running.reasons.add("h2d_ceilings", "a trial of mode timeline probes it")
    else:
        found["h2d_ceilings"] = h2d_ceilings(device, found["batch"]["bytes"])


def _device_peaks(running: Running) -> None:
    """Bytes in use by torch at most: page-locked memory of the host, without blocks kept for later, and memory of the device."""
    peaks: dict[str, int | None] = {"pinned": None, "gpu_memory": None}
    if running.device.name == "cuda":
        peaks["gpu_memory"] = torch.cuda.max_memory_allocated()
        stats = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {}
        peaks["pinned"] = stats.get("active_bytes.peak")
        if peaks["pinned"] is None:
            running.reasons.add("peaks.pinned", "torch.cuda.host_memory_stats of this torch does not tell active_bytes")
    else:
        for name in peaks:
            running.reasons.add(f"peaks.{name}", NO_ACCELERATOR)
    running.found["device_peaks"] = peaks
