"""A folder of small files, read as users of torchvision's ImageFolder read it: map-style, in random order."""

from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from shardtools.bench.readers._random import sampled_kwargs
from shardtools.bench.readers._stopwatch import Stopwatch, now
from shardtools.bench.readers.opened import open_file
from shardtools.bench.readers.side import KEY, Delivery, RawSample, Side
from shardtools.bench.readers.small_files import FileSample, SampleList, list_samples
from shardtools.bench.spec import Layout, Workload


class SmallFiles(Dataset[Any]):
    """Sample ``i``, its files opened, read and closed one after the other."""

    def __init__(self, samples: SampleList, delivery: Delivery) -> None:
        self.opener: Callable[[bytes, str], Any] = open_file
        """Of files; in its place one may stand that waits as a slow device would."""
        self._samples = samples
        self._delivery = delivery

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: int) -> Any:
        sample, timers = self._samples[i], self._delivery.timers
        if timers is None:
            return self._delivery.finish(_read(sample, self.opener))
        began, storage = now(), Stopwatch()
        raw = _read(sample, self.opener)
        storage.add(began, sum(len(raw[name]) for name, _ in sample.files))
        storage.flush(timers, "storage")
        return self._delivery.finish(raw)


def open_layout(layout: Layout, workload: Workload, delivery: Delivery) -> Side:
    dataset = SmallFiles(list_samples(layout.uri, workload), delivery)
    order = "random files" if workload.shuffle else "files in order of their keys"
    return Side(dataset, sampled_kwargs(dataset, workload, delivery), len(dataset), order)


def _read(sample: FileSample, opener: Callable[[bytes, str], Any]) -> RawSample:
    raw: RawSample = {KEY: sample.key}
    for field, path in sample.files:
        with opener(path, "rb") as file:
            raw[field] = file.read()
    return raw
