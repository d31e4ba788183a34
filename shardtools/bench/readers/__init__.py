"""Readers of every layout, each as its users set it up, with the same samples, decode, transform and collate on all sides."""

from typing import TYPE_CHECKING

from shardtools.bench.readers._open import open_reader
from shardtools.bench.readers.layouts import layouts_of, settle_workload
from shardtools.bench.readers.shared_memory import free_shared_memory
from shardtools.bench.readers.side import Delivery, Side
from shardtools.bench.spec import Layout, Settings, Workload

if TYPE_CHECKING:
    from shardtools.bench.timers import StageTimers

__all__ = ["Side", "free_shared_memory", "layouts_of", "open_side", "settle_workload"]


def open_side(layout: Layout, workload: Workload, settings: Settings, timers: "StageTimers | None" = None) -> Side:
    """A layout ready to be read by a ``DataLoader``; timers count stages inside its workers.

    Settle a workload that several sides share before, by ``settle_workload``: alone, each side takes what fits itself.
    Raises UsageError where the layout cannot be read so.
    """
    from shardtools.bench.readers.prepare import Collate, Prepare

    workload = settle_workload([layout], workload)
    delivery = Delivery(Prepare(layout, workload, timers), Collate(workload.decode, timers), timers, settings.num_workers)
    return open_reader(layout, workload, delivery)
