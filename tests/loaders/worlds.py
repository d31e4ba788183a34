"""Datasets without files, read as the workers of a DataLoader read them, and the arithmetic of orders and batches once more by hand."""

import os
import pickle
import resource
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from shardtools.loaders import LoaderOptions, ShardedDataset
from shardtools.loaders._world import World

QUIET = [
    pytest.mark.train,
    # torch's own calls of what torch calls old, and torch's advice on machines with few cores.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


class Numbers:
    """A catalog whose samples are named by shard and row."""

    is_remote = False

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = np.array(counts, np.int64)
        self.digest = repr(list(counts))
        self.field_encodings: dict[str, str] = {}

    def name(self, shard: int) -> str:
        return f"shard {shard}"

    def reader(self, shard: int) -> Any:
        def read(row: int) -> dict[str, Any]:
            assert 0 <= row < self.counts[shard]
            return {"__key__": f"{shard}/{row}"}

        return read

    def key(self, shard: int, row: int) -> str:
        return f"{shard}/{row}"

    def keys(self) -> list[str]:
        return [f"{shard}/{row}" for shard, count in enumerate(self.counts.tolist()) for row in range(count)]


def dataset_of(counts: Sequence[int], world: World, seed: int | None, block_shards: int = 8) -> ShardedDataset:
    options = LoaderOptions(last_batch=world.last_batch, block_shards=block_shards)
    return ShardedDataset(Numbers(counts), world, seed, None, options)


def keys_of(loader: Iterable[Any]) -> list[list[str]]:
    """Batch by batch."""
    return [list(batch["__key__"]) for batch in loader]


def raised_by(read: Callable[[], Any]) -> Exception:
    """The error, without the frames that hold on to workers: torch waits 5 s for each worker that only the garbage collector ends."""
    try:
        read()
    except Exception as error:
        traceback.clear_frames(error.__traceback__)
        return error.with_traceback(None)
    raise AssertionError("expected an error, got none")


@contextmanager
def few_open_files(num_more: int) -> Iterator[None]:
    """So many more than are open now; a login shell of Linux allows 1,024 in all."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + num_more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class Pass:
    """One pass of a DataLoader over one rank's dataset: each worker has a copy, and batches come from them in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dataset: ShardedDataset, num_workers: int, seed: int = 7) -> None:
        self._monkeypatch = monkeypatch
        copies = [dataset] if num_workers == 0 else [pickle.loads(pickle.dumps(dataset)) for _ in range(num_workers)]
        for copy in copies:
            copy._shared = dataset._shared
        workers = [SimpleNamespace(id=i, num_workers=num_workers, seed=seed + i) for i in range(num_workers)]
        self._infos: list[Any] = workers or [None]
        self.batches = self._run(copies, dataset._world.batch_size)

    def _run(self, copies: list[ShardedDataset], batch_size: int) -> list[list[str]]:
        streams = []
        for info, copy in zip(self._infos, copies, strict=True):
            self._monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", info)
            keys = [sample["__key__"] for sample in copy]
            streams.append([keys[i : i + batch_size] for i in range(0, len(keys), batch_size)])
        self._monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", None)
        return [batch for turn in zip_longest(*streams) for batch in turn if batch is not None]


def epoch_places(counts: Sequence[int], seed: int | None, epoch: int, block_shards: int) -> list[tuple[int, int]]:
    """Shard and row at every position, by the definition: sort by random words, ties by number; shards, then blocks of them."""

    def permutation(count: int, kind: int, number: int) -> list[int]:
        random = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=np.array([0, 0, number, kind], np.uint64))
        words = [int(word) for word in random.random_raw(count)]
        # The bits that a number takes are no part of the word it is sorted by.
        return sorted(range(count), key=lambda i: (words[i] // 2 ** len(f"{count - 1:b}") if count > 1 else 0, i))

    if seed is None:
        return [(shard, row) for shard, count in enumerate(counts) for row in range(count)]
    places: list[tuple[int, int]] = []
    shards = permutation(len(counts), 0, 0)
    for begin in range(0, len(shards), block_shards):
        block = [(shard, row) for shard in shards[begin : begin + block_shards] for row in range(counts[shard])]
        places += [block[i] for i in permutation(len(block), 1, begin // block_shards)]
    return places


def epoch_keys(counts: Sequence[int], seed: int | None, epoch: int, block_shards: int) -> list[str]:
    """The same as ``Numbers`` names them."""
    return [f"{shard}/{row}" for shard, row in epoch_places(counts, seed, epoch, block_shards)]


def global_batches(order: list[str], batch_size: int, world_size: int, last_batch: str) -> list[list[list[str]]]:
    """What each rank must get at each step, where ``order`` is left of the epoch. ``pad`` must know the epoch: see ``padded``."""
    step = batch_size * world_size
    steps = []
    for begin in range(0, len(order), step):
        run = order[begin : begin + step]
        if len(run) == step:
            steps.append([run[rank * batch_size : (rank + 1) * batch_size] for rank in range(world_size)])
        elif last_batch == "short":
            sizes = [len(run) // world_size + (rank < len(run) % world_size) for rank in range(world_size)]
            cuts = [sum(sizes[:rank]) for rank in range(world_size + 1)]
            steps.append([run[a:b] for a, b in pairwise(cuts)])
    return steps


def batches_of_rank(order: list[str], world: World) -> list[list[str]]:
    """What one rank must get of ``order``, with last batches that are not padded."""
    steps = global_batches(order, world.batch_size, world.world_size, world.last_batch)
    return [step[world.rank] for step in steps if step[world.rank]]


def padded(left: list[str], epoch: list[str], step: int) -> list[str]:
    """``left`` filled up to whole steps with the epoch's first samples, again and again."""
    missing = -len(left) % step
    return left + [epoch[i % len(epoch)] for i in range(missing)]
