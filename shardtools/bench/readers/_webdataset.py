"""Tars by the webdataset library: shards shuffled and split over workers, then samples mixed in a buffer.

Those of a bucket come through ``pipe:aws s3 cp URL -``, as the library's users read them: it has no way of its own.
"""

import os
import shlex
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse

import webdataset

from shardtools.bench.places import is_remote
from shardtools.bench.readers._stopwatch import Stopwatch, TimedFile, timed_parse
from shardtools.bench.readers.side import KEY, Delivery, RawSample, Side
from shardtools.bench.spec import Layout, Workload
from shardtools.bench.timers import StageTimers
from shardtools.datasets import Dataset, open_dataset
from shardtools.errors import UsageError
from shardtools.units import plural

_PIPE, _PROGRAM = "pipe", "aws"


class Finish:
    """A sample without what the library adds to it."""

    def __init__(self, delivery: Delivery) -> None:
        self._finish = delivery.finish

    def __call__(self, sample: dict[str, Any]) -> Any:
        raw: RawSample = {name: value for name, value in sample.items() if name == KEY or not name.startswith("__")}
        return self._finish(raw)


class TimedOpen:
    """In place of the library's own stage: files and pipes, whose reads are counted."""

    def __init__(self, storage: Stopwatch) -> None:
        self._storage = storage

    def __call__(self, urls: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for url in urls:
            parsed = urlparse(url["url"])
            is_pipe = parsed.scheme == _PIPE
            file = webdataset.gopen(url["url"]) if is_pipe else open(parsed.path, "rb")  # noqa: SIM115 - the next stage closes it
            local = {} if is_pipe else {"local_path": parsed.path}
            yield {"url": url["url"], "stream": TimedFile(file, self._storage)} | local


class TimedParse:
    """Behind the library's parser."""

    def __init__(self, timers: StageTimers, storage: Stopwatch) -> None:
        self._timers = timers
        self._storage = storage

    def __call__(self, samples: Iterator[Any]) -> Iterator[Any]:
        return timed_parse(iter(samples), self._timers, self._storage)


def open_layout(layout: Layout, workload: Workload, delivery: Delivery) -> Side:
    found = open_dataset(layout.uri)
    root = found.storage.uri
    as_url = _as_pipe if is_remote(root) else _as_url
    urls = [as_url(os.path.join(root, shard.name)) for shard in found.shards]
    # Without a check for empty workers, which is no fault where shards are few.
    dataset: Any = webdataset.WebDataset(
        urls, shardshuffle=len(urls) if workload.shuffle else False, detshuffle=workload.shuffle, seed=workload.seed, empty_check=False
    )
    if delivery.timers is not None:
        _time(dataset, delivery.timers)
    buffer = workload.buffer_samples(found.num_samples, delivery.num_workers)
    if workload.shuffle:
        dataset = dataset.shuffle(buffer)
    dataset = dataset.map(Finish(delivery))
    kwargs = {"batch_size": workload.batch_size, "collate_fn": delivery.collate}
    order = f"shards shuffled, a buffer of {plural(buffer, 'sample')}" if workload.shuffle else "shards in order"
    return Side(dataset, kwargs, found.num_samples, order, _limits(found, buffer if workload.shuffle else 0, delivery.num_workers))


def _time(dataset: Any, timers: StageTimers) -> None:
    storage = Stopwatch()
    stages = dataset.pipeline
    at = next((i for i, stage in enumerate(stages) if isinstance(stage, webdataset.cache.StreamingOpen)), None)
    if at is not None:  # else the library reads from a cache of its own, and storage counts as parsing
        stages[at] = TimedOpen(storage)
    dataset.append(TimedParse(timers, storage))


def _limits(found: Dataset, buffer: int, num_workers: int) -> list[str]:
    limits, num_shards = [], len(found.shards)
    if is_remote(found.storage.uri):
        limits.append(f"each shard comes through a pipe from `{_PROGRAM} s3 cp`, a program that is started for it")
    if num_shards < num_workers:
        limits.append(f"{plural(num_shards, 'shard')} can keep at most {num_shards} of {num_workers} workers busy")
    elif num_workers and num_shards % num_workers:
        limits.append(f"{plural(num_shards, 'shard')} cannot be shared equally by {num_workers} workers: some end before others")
    if buffer:
        buffered = buffer * max(1, num_workers)
        limits.append(f"shuffles by shards and a buffer, which is less random than random access; holds {buffered:,} samples in memory")
    return limits


def _as_pipe(uri: str) -> str:
    """Raises UsageError where the program is missing that the pipe starts."""
    if shutil.which(_PROGRAM) is None:
        raise UsageError(
            f"expected the program {_PROGRAM} for webdataset, which reads buckets through a pipe from it, got none; "
            "pip install awscli, in an environment of its own, or take --reader shardtools"
        )
    return f"{_PIPE}:{_PROGRAM} s3 cp {shlex.quote(uri)} -"


def _as_url(path: str) -> str:
    """webdataset takes a path for a URL, and cuts it at these characters."""
    if any(mark in path for mark in "#?;\n\r\t"):
        what = "expected a path without #, ?, ; and breaks of lines, which webdataset cuts it at"
        raise UsageError(f"{what}, got {path!r}; rename or move it, or take --reader shardtools")
    return path
