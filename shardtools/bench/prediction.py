"""What a ``DataLoader`` will take of shared memory, descriptors, page-locked and resident memory, told before it begins; and whether
that is there.

Symbols: W = ``num_workers``, P = ``prefetch_factor``, b = what a collated batch takes. At most W·P + 2 batches live at once: those
that workers were asked for, one just returned, and the one before it, which the caller still holds.
"""

import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from shardtools.bench.counters import host
from shardtools.bench.environment import usable_memory_bytes
from shardtools.bench.not_measured import Unknown
from shardtools.bench.spec import Copy, Settings
from shardtools.units import format_bytes

MOST_AHEAD = 8
"""Steps the host may be ahead of the device: a loader faster than the device would else fill its memory with batches."""
Resource = Literal["shm", "fds", "RAM"]
RESOURCES: tuple[Resource, ...] = ("shm", "fds", "RAM")
_PAGE_BYTES = 4096
_HELD_BATCHES = 2
SAFE_SHARE = 0.8
"""Of free shared memory, and of descriptors: above it a loader is refused."""
_SAFE_RAM_SHARE = 0.7
_FEWER = "use fewer workers, a lower prefetch factor, smaller batches"
_FEWER_TENSORS = "collate into fewer tensors, use fewer workers, a lower prefetch factor"


@dataclass(frozen=True)
class Batch:
    """A collated batch."""

    bytes: int
    tensors: int
    shm_bytes: int
    """In shared memory each tensor takes whole pages."""
    pinned_bytes: int
    """In page-locked memory each takes a block of a power of two."""
    samples: int

    @classmethod
    def of(cls, batch: Any, num_samples: int) -> "Batch":
        """Of a batch that is there."""
        from shardtools.bench.leaves import leaves  # torch, which need not be there to predict

        return cls.of_tensors([leaf.tensor.numel() * leaf.tensor.element_size() for leaf in leaves(batch)], num_samples)

    @classmethod
    def of_tensors(cls, sizes: Sequence[int], num_samples: int) -> "Batch":
        """``sizes``: bytes of each tensor. Source of the rounding: ``torch.cuda.host_memory_stats``."""
        shm_bytes = sum(-(-size // _PAGE_BYTES) * _PAGE_BYTES for size in sizes)
        pinned_bytes = sum(1 << (size - 1).bit_length() for size in sizes if size)
        return cls(sum(sizes), len(sizes), shm_bytes, pinned_bytes, num_samples)

    def as_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Probe:
    """What one batch and the worker that made it took, on this data and by this reader."""

    batch: Batch
    worker_rss_bytes: int | None
    """Of a worker that has made a batch, memory it shares with nobody, batch included. None: not known."""
    main_rss_bytes: int | None
    """Of the process that owns the loader, before it has workers."""
    buffer_bytes_per_worker: int | None
    """That a worker goes on to fill: webdataset's shuffle buffer of raw samples. Readers that map shards hold nothing of theirs that
    the kernel could not drop."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def probe_of(data: dict[str, Any]) -> Probe:
    """The probe ``as_json`` wrote."""
    return Probe(**{**data, "batch": Batch(**data["batch"])})


@dataclass(frozen=True)
class Prediction:
    """Of all ranks of a node together; descriptors, whose limit is of each process, of one."""

    shm_bytes: int
    """An estimate, (W·P + 1)·b; 0 where there are no workers, since nothing is sent."""
    shm_bound_bytes: int
    """(W·P + 2)·b, which was never exceeded by batches of that size."""
    fds: int
    """One for each tensor of each batch: k·(W·P + 2), beside what the process has open anyhow."""
    pinned_bound_bytes: int
    ram_bytes: int | None
    """Resident memory of all processes, shared memory and page-locked memory included. None: not known."""

    def as_json(self) -> dict[str, int | None]:
        return asdict(self)


def predict(probe: Probe, settings: Settings, copy: Copy, num_ranks: int = 1) -> Prediction:
    """For a loader with these settings over the data that was probed, with batches of that size.

    ``pin_memory`` is taken at its word: clear it where there is no accelerator, and it has no effect.
    """
    batch, queue = probe.batch, settings.num_workers * settings.prefetch_factor
    live = queue + _HELD_BATCHES
    sent = live if queue else 0
    # Where the host does not wait for copies, it holds on to the batches it is ahead by.
    pinned = live + (0 if copy == "blocking" else MOST_AHEAD) if settings.pin_memory else 0
    shm_bound_bytes, pinned_bound_bytes = sent * batch.shm_bytes, pinned * batch.pinned_bytes
    resident_bytes = _resident_bytes(probe, settings.num_workers)
    return Prediction(
        shm_bytes=num_ranks * (queue + 1) * batch.shm_bytes if queue else 0,
        shm_bound_bytes=num_ranks * shm_bound_bytes,
        fds=sent * batch.tensors,
        pinned_bound_bytes=num_ranks * pinned_bound_bytes,
        ram_bytes=None if resident_bytes is None else num_ranks * (resident_bytes + shm_bound_bytes + pinned_bound_bytes),
    )


def _resident_bytes(probe: Probe, num_workers: int) -> int | None:
    """Of the processes themselves. Without workers the main process reads, and has the buffer and the batches."""
    if probe.main_rss_bytes is None or probe.buffer_bytes_per_worker is None:
        return None
    if num_workers == 0:
        return probe.main_rss_bytes + probe.buffer_bytes_per_worker + _HELD_BATCHES * probe.batch.bytes
    if probe.worker_rss_bytes is None:
        return None
    return probe.main_rss_bytes + num_workers * (probe.worker_rss_bytes + probe.buffer_bytes_per_worker)


@dataclass(frozen=True)
class Limits:
    """What there is to take. None: no limit, or not known."""

    shm_free_bytes: int | None
    fds: int | None
    """A process may have open."""
    usable_memory_bytes: int | None
    """Available memory, or less where a control group ends sooner; what lies in ``/dev/shm`` counts."""

    @classmethod
    def here(cls) -> "Limits":
        """Of this machine, this process and the present moment."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return cls(_shm_free_bytes(), None if soft == resource.RLIM_INFINITY else soft, _usable_memory_bytes())

    def beside(self, resident_bytes: int) -> "Limits":
        """The same where so much of what is foreseen is taken already."""
        usable_bytes = self.usable_memory_bytes
        return self if usable_bytes is None else replace(self, usable_memory_bytes=usable_bytes + resident_bytes)


def exceeded(prediction: Prediction, limits: Limits) -> tuple[Resource, ...]:
    """What a loader would take too much of, in the order of ``RESOURCES``; empty where it can begin.

    Above 80 % of shared memory or descriptors, or 70 % of memory, it is too much: an estimate may be short, and others take some too.
    """
    taken = {
        "shm": (prediction.shm_bound_bytes, limits.shm_free_bytes, SAFE_SHARE),
        "fds": (prediction.fds, limits.fds, SAFE_SHARE),
        "RAM": (_least_ram_bytes(prediction), limits.usable_memory_bytes, _SAFE_RAM_SHARE),
    }

    def is_too_much(name: Resource) -> bool:
        needed, there_is, share = taken[name]
        return there_is is not None and needed > share * there_is

    return tuple(filter(is_too_much, RESOURCES))


def refusal(prediction: Prediction, limits: Limits) -> str | None:
    """Why a loader is not to be begun, by the first resource of which it would take too much, and what to do, in one sentence; None where
    it can."""
    resource = next(iter(exceeded(prediction, limits)), None)
    if resource == "shm":
        asked = f"shm {format_bytes(prediction.shm_bound_bytes)} of {format_bytes(limits.shm_free_bytes or 0)} free in /dev/shm"
        return f"not run: {asked}, of which {SAFE_SHARE:.0%} are safe; {_FEWER}, or a larger /dev/shm"
    if resource == "fds":
        asked = f"{prediction.fds:,} of {limits.fds or 0:,} file descriptors"
        return f"not run: {asked}, of which {SAFE_SHARE:.0%} are safe; {_FEWER_TENSORS}, or raise ulimit -n"
    if resource == "RAM":
        asked = f"RAM {format_bytes(_least_ram_bytes(prediction))} of {format_bytes(limits.usable_memory_bytes or 0)} usable memory"
        return f"not run: {asked}, of which {_SAFE_RAM_SHARE:.0%} are safe; {_FEWER}, a smaller shuffle buffer, or more memory"
    return None


def _least_ram_bytes(prediction: Prediction) -> int:
    """Without a look at a worker it is known that batches alone take so much."""
    known = prediction.ram_bytes
    return prediction.shm_bound_bytes + prediction.pinned_bound_bytes if known is None else known


def _shm_free_bytes() -> int | None:
    try:
        return host.shared_memory().free_bytes
    except Unknown:
        return None


def _usable_memory_bytes() -> int | None:
    try:
        return usable_memory_bytes()
    except Unknown:
        return None
