"""W x P against the limits: what a loader would take, and which settings break what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.bench.doctor.batches import NamedBatch
from shardtools.bench.doctor.finding import Finding
from shardtools.bench.doctor.machine import Machine
from shardtools.bench.doctor.remedies import larger_shm, more_descriptors, of_size
from shardtools.bench.doctor.request import DoctorRequest
from shardtools.bench.prediction import RESOURCES, Limits, Prediction, Probe, Resource, exceeded, predict, refusal
from shardtools.bench.spec import Settings


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
    breaks: tuple[Resource, ...]
    """What it would take too much of."""
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
                breaks, refused = exceeded(foreseen, limits), refusal(foreseen, limits)
                found.append(Cell(named, num_workers, prefetch_factor, foreseen, breaks, refused))
    return found


def table_findings(cells: Sequence[Cell], machine: Machine, limits: Limits) -> Iterator[Finding]:
    """What breaks from where on, and the largest setting that fits: one finding for each limit, with what is enough for every batch."""
    groups = [[cell for cell in cells if cell.named is named] for named in dict.fromkeys(cell.named for cell in cells)]
    for name in RESOURCES:
        broken = [own for own in groups if any(name in cell.breaks for cell in own)]
        if broken:
            yield _finding(name, broken, machine, limits)
    for own in groups:
        if not any(cell.breaks for cell in own):
            yield Finding("ok", "W x P", f"{_batch(own[0].named)}: all settings fit, up to {_settings(max(own, key=_queue))}.")


def _finding(name: str, groups: Sequence[Sequence[Cell]], machine: Machine, limits: Limits) -> Finding:
    """About the batch that breaks it first, with where others do."""
    firsts = sorted((min((cell for cell in own if name in cell.breaks), key=_queue) for own in groups), key=_queue)
    first, cells = firsts[0], next(own for own in groups if firsts[0] in own)
    others = [f" (those of {of_size(one.named.batch.bytes)} from {_settings(one)} on)" for one in firsts[1:]]
    took = f"{_batch(first.named)}: from {_settings(first)} on {_too_little(name, first, limits)}{''.join(others)}; {_fitting(cells)}"
    remedy = _remedy(name, [cell for own in groups for cell in own], machine)
    return Finding("fault" if _most_that_fits(cells) is None else "warning", "W x P", f"{took}; {remedy}.")


def _too_little(name: str, cell: Cell, limits: Limits) -> str:
    foreseen = cell.predicted
    if name == "shm":
        return f"/dev/shm is too small ({of_size(foreseen.shm_bound_bytes)} of {of_size(limits.shm_free_bytes)} free, 80 % safe)"
    if name == "fds":
        return f"descriptors run out ({foreseen.fds:,} of {limits.fds:,}, 80 % safe)"
    taken = foreseen.ram_bytes if foreseen.ram_bytes is not None else foreseen.shm_bound_bytes
    return f"memory runs out ({of_size(taken)} of {of_size(limits.usable_memory_bytes)} usable, 70 % safe)"


def _remedy(name: str, cells: Sequence[Cell], machine: Machine) -> str:
    """Enough for everything that was asked about; of shared memory, which is memory, for what memory has room for."""
    if name == "shm":
        wanted = max((cell.predicted.shm_bound_bytes for cell in cells if "RAM" not in cell.breaks), default=0)
        is_of_use = any("shm" in cell.breaks and "RAM" not in cell.breaks for cell in cells)
        larger = f", or {larger_shm(wanted, machine.is_container)}" if is_of_use else ": memory has no room for these either"
        return f"use smaller batches{larger}"
    if name == "fds":
        return more_descriptors(max(cell.predicted.fds for cell in cells), machine.descriptors[1], machine.is_container)
    return "use fewer workers or smaller batches, or give more memory" + (" (`docker run --memory`)" if machine.is_container else "")


def _fitting(cells: Sequence[Cell]) -> str:
    most = _most_that_fits(cells)
    return "no setting with workers fits all limits" if most is None else f"{_settings(most)} fits"


def _most_that_fits(cells: Sequence[Cell]) -> Cell | None:
    return max((cell for cell in cells if not cell.breaks and cell.num_workers), key=_queue, default=None)


def _queue(cell: Cell) -> tuple[int, int]:
    return cell.num_workers * cell.prefetch_factor, cell.num_workers


def _settings(cell: Cell) -> str:
    return f"num_workers={cell.num_workers} prefetch_factor={cell.prefetch_factor}"


def _batch(named: NamedBatch) -> str:
    return f"Batches of {of_size(named.batch.bytes)} ({named.name})"
