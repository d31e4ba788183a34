"""Map-style datasets as ``DataLoader`` users read them: by a random sampler."""

from typing import Any

import torch
from torch.utils.data import RandomSampler, SequentialSampler

from shardtools.bench.readers.side import Delivery
from shardtools.bench.spec import Workload


def sampled_kwargs(dataset: Any, workload: Workload, delivery: Delivery) -> dict[str, Any]:
    """For the ``DataLoader``; the order is another in each epoch, and the same for the same seed."""
    sampler: Any = SequentialSampler(dataset)
    if workload.shuffle:
        sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(workload.seed))
    return {"batch_size": workload.batch_size, "sampler": sampler, "collate_fn": delivery.collate}
