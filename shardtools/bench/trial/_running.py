"""What is open while a trial runs."""

import multiprocessing
from dataclasses import dataclass, field, replace
from typing import Any

from torch.utils.data import DataLoader

from shardtools.bench.devices import Device
from shardtools.bench.not_measured import Reasons
from shardtools.bench.readers import Side
from shardtools.bench.spec import TrialSpec
from shardtools.bench.timers import StageTimers
from shardtools.bench.trial._epochs import Epochs
from shardtools.bench.trial.loader import BATCH_TIMEOUT_SECONDS, loader_kwargs


@dataclass
class Running:
    """A trial, and what it has found so far."""

    spec: TrialSpec
    device: Device
    side: Side
    epochs: Epochs
    timers: StageTimers | None
    found: dict[str, Any] = field(default_factory=dict)
    reasons: Reasons = field(default_factory=Reasons)


def trial_loader(spec: TrialSpec, dataset: Any, side_kwargs: dict[str, Any]) -> "DataLoader[Any]":
    """The trial's ``DataLoader`` over a dataset; ``side_kwargs`` has what is the reader's own."""
    settings = spec.settings
    if spec.consumer.device != "cuda":
        settings = replace(settings, pin_memory=False)  # torch would warn and do nothing
    seconds = BATCH_TIMEOUT_SECONDS
    if (settings.start_method or multiprocessing.get_start_method()) != "fork":
        seconds = max(seconds, spec.timeout_seconds / 2)  # workers import torch before their first batch
    return DataLoader(dataset, **side_kwargs, **loader_kwargs(settings, seconds))
