"""W x P against the limits: what a loader would take, and which settings break what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.bench.doctor.batches import NamedBatch
from shardtools.bench.doctor.finding import Finding
from shardtools.bench.doctor.machine import Machine
from shardtools.bench.doctor.remedies import larger_shm, more_descriptors, of_size
from shardtools.bench.doctor.request import DoctorRequest
from shardtools.bench.prediction import Limits, Prediction, Probe, predict, refusal
from shardtools.bench.spec import Settings

_RESOURCES = ("shm", "fds", "RAM")


@dataclass(frozen=True)
class ProcessMemory:
    """Of processes that have torch loaded, before they hold any batch. None: not known."""

    worker_bytes: int | None
    main_bytes: int | None


@dataclass(frozen=True)
class Cell:
    """One setting with one batch."""

    named: NamedBatch
    num_workers: int
    prefetch_factor: int
    predicted: Prediction
    breaks: tuple[str, ...]
    """Of ``shm``, ``fds``, ``RAM``: what it would take too much of."""
    refusal: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "batch": self.named.name,
            "num_workers": self.num_workers,
            "prefetch_factor": self.prefetch_factor,
            "predicted": self.predicted.as_json(),
            "breaks": list(self.breaks),
            "refusal": self.refusal,
        }


def cells_of(request: DoctorRequest, batches: Sequence[NamedBatch], memory: ProcessMemory, limits: Limits) -> list[Cell]:
    """By batch, W and P. What readers buffer before a batch, such as webdataset's shuffle buffer, is not in it."""
    found = []
    for named in batches:
        worker_bytes = None if memory.worker_bytes is None else memory.worker_bytes + named.batch.bytes
        probe = Probe(named.batch, worker_bytes, memory.main_bytes, 0)
        for num_workers in request.num_workers:
            for prefetch_factor in request.prefetch_factors if num_workers else request.prefetch_factors[:1]:
                foreseen = predict(probe, Settings(num_workers, prefetch_factor), "blocking", request.num_ranks)
                breaks = tuple(name for name in _RESOURCES if refusal(foreseen, _alone(limits, name)))
                found.append(Cell(named, num_workers, prefetch_factor, foreseen, breaks, refusal(foreseen, limits)))
    return found


def _alone(limits: Limits, name: str) -> Limits:
    """One limit, as if there were no other."""
    return Limits(
        limits.shm_free_bytes if name == "shm" else None,
        limits.fds if name == "fds" else None,
        limits.usable_memory_bytes if name == "RAM" else None,
    )


def table_findings(cells: Sequence[Cell], machine: Machine, limits: Limits) -> Iterator[Finding]:
    """What breaks from where on, and the largest setting that fits; one finding for each batch and limit."""
    for named in dict.fromkeys(cell.named for cell in cells):
        own = [cell for cell in cells if cell.named is named]
        broken = [name for name in _RESOURCES if any(name in cell.breaks for cell in own)]
        for name in broken:
            yield _finding(name, own, machine, limits)
        if not broken:
            settings = _settings(max(own, key=_queue))
            yield Finding("ok", "W x P", f"{_batch(named)}: all settings fit, up to {settings}.")


def _finding(name: str, cells: Sequence[Cell], machine: Machine, limits: Limits) -> Finding:
    first = min((cell for cell in cells if name in cell.breaks), key=_queue)
    fitting = [cell for cell in cells if not cell.breaks and cell.num_workers]
    most = max(cells, key=_queue).predicted
    still = f"{_settings(max(fitting, key=_queue))} fits" if fitting else "no setting with workers fits all limits"
    took = f"{_batch(first.named)}: from {_settings(first)} on "
    if name == "shm":
        free = of_size(limits.shm_free_bytes)
        what = f"/dev/shm is too small ({of_size(first.predicted.shm_bound_bytes)} of {free} free, 80 % safe)"
        remedy = "use smaller batches, or " + larger_shm(most.shm_bound_bytes, machine.is_container)
    elif name == "fds":
        what = f"descriptors run out ({first.predicted.fds:,} of {limits.fds:,}, 80 % safe)"
        remedy = more_descriptors(most.fds, machine.descriptors[1], machine.is_container)
    else:
        taken = first.predicted.ram_bytes if first.predicted.ram_bytes is not None else first.predicted.shm_bound_bytes
        what = f"memory runs out ({of_size(taken)} of {of_size(limits.usable_memory_bytes)} usable, 70 % safe)"
        remedy = "use fewer workers or smaller batches, or give more memory" + (" (`docker run --memory`)" if machine.is_container else "")
    return Finding("warning" if fitting else "fault", "W x P", f"{took}{what}; {still}; {remedy}.")


def _queue(cell: Cell) -> tuple[int, int]:
    return cell.num_workers * cell.prefetch_factor, cell.num_workers


def _settings(cell: Cell) -> str:
    return f"num_workers={cell.num_workers} prefetch_factor={cell.prefetch_factor}"


def _batch(named: NamedBatch) -> str:
    return f"Batches of {of_size(named.batch.bytes)} ({named.name})"
