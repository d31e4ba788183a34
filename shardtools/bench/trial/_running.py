"""What is open while a trial runs."""

import multiprocessing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from shardtools.bench.devices import Device
from shardtools.bench.not_measured import Reasons
from shardtools.bench.readers import Side
from shardtools.bench.readers.counted import Counting
from shardtools.bench.spec import Settings, TrialSpec
from shardtools.bench.timers import StageTimers
from shardtools.bench.traffic import Traffic
from shardtools.bench.trial._epochs import Epochs
from shardtools.bench.trial.loader import BATCH_TIMEOUT_SECONDS, limit_threads, loader_kwargs


@dataclass
class Running:
    """A trial, and what it has found so far."""

    spec: TrialSpec
    device: Device
    side: Side
    epochs: Epochs
    timers: StageTimers | None
    traffic: Traffic | None = None
    """Of data in a bucket."""
    opened: float = 0.0
    """When the data was about to be opened, by the device's clock."""
    found: dict[str, Any] = field(default_factory=dict)
    reasons: Reasons = field(default_factory=Reasons)


def effective_settings(spec: TrialSpec) -> Settings:
    """Without CUDA no memory is pinned: torch would warn and do nothing."""
    return spec.settings if spec.consumer.device == "cuda" else replace(spec.settings, pin_memory=False)


def trial_loader(spec: TrialSpec, dataset: Any, side_kwargs: dict[str, Any], traffic: Traffic | None = None) -> "DataLoader[Any]":
    """The trial's ``DataLoader`` over a dataset; ``side_kwargs`` has what is the reader's own. It delivers ``Sent``."""
    settings = effective_settings(spec)
    seconds, begin = BATCH_TIMEOUT_SECONDS, {}
    if (settings.start_method or multiprocessing.get_start_method()) != "fork":
        seconds = max(seconds, spec.timeout_seconds / 2)  # workers import torch before their first batch
        if traffic is not None and settings.num_workers:
            begin = {"worker_init_fn": partial(_begin_fresh, traffic)}
    own = side_kwargs | {"collate_fn": Counting(side_kwargs["collate_fn"])}
    return DataLoader(dataset, **own, **(loader_kwargs(settings, seconds) | begin))


def _begin_fresh(traffic: Traffic, worker: int) -> None:
    limit_threads(worker)
    traffic.begin_worker()
