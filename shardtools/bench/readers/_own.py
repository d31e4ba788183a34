"""WDS, MDS and JSON lines by ``shardtools.loaders``."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

from shardtools.bench.places import is_remote
from shardtools.bench.readers._stopwatch import Stopwatch, now
from shardtools.bench.readers.prepare import payload_bytes
from shardtools.bench.readers.side import Delivery, RawSample, Side
from shardtools.bench.spec import Layout, Workload
from shardtools.bench.timers import StageTimers
from shardtools.loaders import LoaderOptions, open_dataset
from shardtools.units import parse_bytes


class TimedFinish:
    """What finishes samples, counting as storage the time since the dataset last took over."""

    def __init__(self, finish: Callable[[RawSample], Any], timers: StageTimers) -> None:
        self._finish = finish
        self._timers = timers
        self._storage = Stopwatch()
        self.began = now()

    def __call__(self, raw: RawSample) -> Any:
        self._storage.add(self.began, payload_bytes(raw))
        self._storage.flush(self._timers, "storage")
        finished = self._finish(raw)
        self.began = now()
        return finished


class TimedDataset(IterableDataset[Any]):
    """The same samples; says when the dataset takes over, whose samples ``finish`` finishes."""

    def __init__(self, dataset: Any, finish: TimedFinish) -> None:
        self._dataset = dataset
        self._finish = finish

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        samples = iter(self._dataset)
        while True:
            self._finish.began = now()
            try:
                sample = next(samples)
            except StopIteration:
                return
            yield sample


def open_layout(layout: Layout, workload: Workload, delivery: Delivery) -> Side:
    # The user's own cache would make one trial quicker than the one before.
    private = layout.cache_folder or tempfile.mkdtemp(prefix="shardtools-cache-")
    cache_bytes = LoaderOptions.cache_bytes if workload.cache_limit is None else parse_bytes(workload.cache_limit)
    options = LoaderOptions(rank=0, world_size=1, cache_bytes=cache_bytes, cache_folder=private)
    finish = delivery.finish if delivery.timers is None else TimedFinish(delivery.finish, delivery.timers)
    try:
        dataset: Any = open_dataset(
            layout.uri, batch_size=workload.batch_size, shuffle=workload.shuffle, seed=workload.seed, decode=finish, options=options
        )
    except BaseException:
        _clean(layout, private)
        raise
    num_samples, limits = len(dataset), []
    if isinstance(finish, TimedFinish):
        dataset = TimedDataset(dataset, finish)
        how = "fetched while they are read" if is_remote(layout.uri) else "mapped"
        limits.append(f"shards are {how}, so that reading and parsing are one: both count as storage")
    kwargs = {"batch_size": workload.batch_size, "collate_fn": delivery.collate}
    order = f"blocks of {options.block_shards} shards shuffled" if workload.shuffle else "samples in order"
    return Side(dataset, kwargs, num_samples, order, limits, lambda: _clean(layout, private))


def _clean(layout: Layout, folder: str) -> None:
    if layout.cache_folder is None:
        shutil.rmtree(folder, ignore_errors=True)
