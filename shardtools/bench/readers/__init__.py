"""Readers of every layout, each as its users set it up, with the same samples, decode, transform and collate on all sides."""

from dataclasses import replace
from typing import TYPE_CHECKING

from shardtools.bench.readers._open import open_reader
from shardtools.bench.readers.layouts import layouts_of, settle_workload
from shardtools.bench.readers.shared_memory import free_shared_memory
from shardtools.bench.readers.side import Delivery, Side
from shardtools.bench.spec import Intervention, Layout, Settings, Workload

if TYPE_CHECKING:
    from shardtools.bench.timers import StageTimers

__all__ = ["Side", "free_shared_memory", "layouts_of", "open_side", "settle_workload"]


def open_side(
    layout: Layout,
    workload: Workload,
    settings: Settings,
    timers: "StageTimers | None" = None,
    intervention: Intervention | None = None,
    plant: str | None = None,
) -> Side:
    """A layout ready to be read by a ``DataLoader``; timers count stages inside its workers.

    Settle a workload that several sides share before, by ``settle_workload``: alone, each side takes what fits itself.
    ``intervention`` and ``plant`` as ``TrialSpec`` has them; what is planted is there before a cost is taken away.
    Raises UsageError where the layout cannot be read so, and for a function that is not there.
    """
    from shardtools.bench.readers._again import NoBatch, SameBatch
    from shardtools.bench.readers.prepare import Collate, Prepare, named_function

    workload = settle_workload([layout], workload)
    planted = None if plant is None else named_function(plant, "plant")
    finish = Prepare(layout, workload, timers, intervention)
    delivery = Delivery(finish, Collate(workload, timers), timers, settings.num_workers, intervention=intervention)
    side = open_reader(layout, workload, delivery)
    if planted is not None:
        side = planted(side)
    around = {"collate": SameBatch, "transfer": NoBatch}.get(intervention or "")
    if around is None:
        return side
    return replace(side, loader_kwargs=side.loader_kwargs | {"collate_fn": around(side.loader_kwargs["collate_fn"])})
