"""One side of a comparison, opened: what a ``DataLoader`` is given, and what must be said beside its numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardtools.bench.spec import Intervention

if TYPE_CHECKING:
    from shardtools.bench.timers import StageTimers

RawSample = dict[str, Any]
"""``__key__`` (str) and the stored bytes of each field. Of rows that are made on the fly: arrays."""
KEY = "__key__"


@dataclass(frozen=True)
class Delivery:
    """What becomes of a sample inside the worker that read it: the same objects whatever reader it comes from."""

    finish: Callable[[RawSample], Any]
    collate: Callable[[list[Any]], Any]
    timers: "StageTimers | None" = None
    num_workers: int = 0
    """Of the ``DataLoader``, for what depends on how many share the reading."""
    is_proof: bool = False
    """Samples are told apart: keys and the documents of rows are there, also where a measurement spares their cost."""
    intervention: Intervention | None = None
    """Done in ``finish`` and ``collate`` already; for readers that decode before."""


def _nothing() -> None:
    """Most readers leave nothing behind."""


@dataclass(frozen=True)
class Side:
    """Data with its reader."""

    dataset: Any
    """Map-style or iterable, for a ``DataLoader``."""
    loader_kwargs: dict[str, Any]
    """For the ``DataLoader``: ``batch_size``, ``collate_fn``, and ``sampler`` of a map-style dataset. Batches hold tensors alone."""
    num_samples: int | None
    """Of an epoch; None where only reading can tell."""
    order: str
    """In what order samples come, for people; other orders are other randomness, and other work for the disk."""
    limits: list[str] = field(default_factory=list)
    """Sentences that belong beside this side's numbers."""
    close: Callable[[], None] = _nothing
    """Removes what the reader left on this machine: call it when the loader is gone, in the process that opened the side."""
