"""MDS by StreamingDataset, from files of its own wherever it would else write into the user's folder."""

import os
import shutil
import tempfile
import warnings
from typing import Any

import numpy as np
from streaming import StreamingDataset

from shardtools.bench.places import is_remote
from shardtools.bench.readers._stopwatch import Stopwatch, now
from shardtools.bench.readers.shared_memory import free_shared_memory, shared_memory_apart
from shardtools.bench.readers.side import KEY, Delivery, RawSample, Side
from shardtools.bench.spec import Layout, Workload
from shardtools.bench.timers import StageTimers
from shardtools.datasets import KEY_COLUMN, Dataset, open_dataset
from shardtools.errors import UsageError
from shardtools.formats import MDS_INDEX_NAME
from shardtools.places import join


class StoredColumns:
    """In place of a shard's ``decode_sample``: its columns as they are stored, for the decoder that all sides share."""

    def __init__(self, shard: Any, timers: StageTimers | None) -> None:
        self._columns = list(zip(shard.column_names, shard.column_sizes, strict=True))
        self._timers = timers

    def __call__(self, data: bytes) -> RawSample:
        if self._timers is None:
            return self._cut(data)
        with self._timers.stage("parse"):
            return self._cut(data)

    def _cut(self, data: bytes) -> RawSample:
        num_variable = sum(not size for _, size in self._columns)
        lengths = iter(np.frombuffer(data, np.uint32, num_variable).tolist())
        at, columns = 4 * num_variable, {}
        for name, size in self._columns:
            length = size or next(lengths)
            columns[name] = data[at : at + length]
            at += length
        return columns


class TimedRead:
    """In place of a shard's ``get_sample_data``: the same, counted."""

    def __init__(self, shard: Any, timers: StageTimers) -> None:
        self._read = type(shard).get_sample_data
        self._shard = shard
        self._timers = timers

    def __call__(self, i: int) -> bytes:
        began, storage = now(), Stopwatch()
        data: bytes = self._read(self._shard, i)
        storage.add(began, len(data))
        storage.flush(self._timers, "storage")
        return data


class StoredRows(StreamingDataset):
    """Stored columns in place of decoded ones, finished by what all sides share."""

    def deliver(self, delivery: Delivery, key_column: str | None) -> None:
        """To be called once, before the first sample."""
        self._finish = delivery.finish
        self._key_column = key_column
        for shard in self.shards:
            vars(shard)["decode_sample"] = StoredColumns(shard, delivery.timers)
            if delivery.timers is not None:
                vars(shard)["get_sample_data"] = TimedRead(shard, delivery.timers)

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        raw = super().get_item(sample_id, retry)
        if self._key_column is None:
            shard, row = self.spanner[sample_id]
            raw[KEY] = f"{shard:05d}/{row:08d}"
        else:
            raw[KEY] = raw.pop(self._key_column).decode()
        return self._finish(raw)


def open_layout(layout: Layout, workload: Workload, delivery: Delivery) -> Side:
    found = open_dataset(layout.uri)
    folder = found.storage.uri
    if found.is_selection or found.storage.num_bytes(MDS_INDEX_NAME) is None:
        splits = () if found.manifest is None else found.manifest.splits
        folder = f"the folder of one split, such as {join(folder, splits[0])}" if splits else "that folder"
        raise UsageError(f"expected one folder with {MDS_INDEX_NAME} for StreamingDataset, got {layout.uri}; name {folder}")
    is_packed = any(shard.compression is not None for shard in found.shards)
    is_copied = is_remote(folder) or is_packed or workload.cache_limit is not None or workload.predownload is not None
    private = tempfile.mkdtemp(prefix="shardtools-mosaic-") if is_copied and layout.cache_folder is None else None
    # Compressed shards are unpacked where they lie; and downloads are there to be limited only where there is something to download.
    local, remote = (layout.cache_folder or private or folder, folder) if is_copied else (folder, None)
    try:
        with shared_memory_apart():
            dataset = _opened(local, remote, workload)
    except ValueError as error:
        _clean(private)
        raise UsageError(f"expected options that StreamingDataset takes, but it said: {error}") from error
    except BaseException:
        _clean(private)
        raise
    dataset.deliver(delivery, _key_column(found))
    kwargs = {"batch_size": workload.batch_size, "collate_fn": delivery.collate}
    order = "py1e, StreamingDataset's own shuffle" if workload.shuffle else "samples in order"
    limits = _limits(is_packed, is_copied and not is_remote(folder))
    return Side(dataset, kwargs, found.num_samples, order, limits, lambda: _clean(private))


def _opened(local: str, remote: str | None, workload: Workload) -> StoredRows:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice on options, which are the user's
        dataset = StoredRows(
            local=local,
            remote=remote,
            predownload=workload.predownload,
            cache_limit=workload.cache_limit,
            batch_size=workload.batch_size,
            shuffle=workload.shuffle,
            shuffle_seed=workload.seed,
            allow_unsafe_types=True,  # nothing is unpickled here
        )
    for stream in dataset.streams:
        # It holds the connection by which the index came. Forked workers would all ask by that one, and take each other's answers.
        if (downloader := getattr(stream, "_downloader", None)) is not None:
            downloader.clean_up()
    return dataset


def _key_column(found: Dataset) -> str | None:
    if any(shard.is_keyless for shard in found.shards):
        return None
    return found.shards[0].format.key_name or KEY_COLUMN


def _limits(is_packed: bool, is_copied: bool) -> list[str]:
    if not is_copied:
        return []
    why = "unpacked" if is_packed else "copied, as from a remote,"
    return [f"shards are {why} to a folder of StreamingDataset's own while they are read, which is part of its numbers"]


def _clean(private: str | None) -> None:
    free_shared_memory(os.getpid())
    if private is not None:
        shutil.rmtree(private, ignore_errors=True)
