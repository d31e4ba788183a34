"""Stops worlds that hold on paper alone: what a real DataLoader gives with 0 to 3 workers, forked, spawned, living on; what it leaves."""

import copy
import gc
import os
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from torch.utils.data import DataLoader  # noqa: E402
from watching import wait_until  # noqa: E402
from worlds import QUIET, batches_of_rank, dataset_of, epoch_keys, epoch_places, keys_of  # noqa: E402

from shardtools.loaders import LoaderOptions, open_dataset  # noqa: E402
from shardtools.loaders._world import World  # noqa: E402
from shardtools.sources.jsonl import Jsonl  # noqa: E402

pytestmark = QUIET

COUNTS = [7, 0, 5, 9, 20, 3]
WORLD = World(1, 2, 3, "short")


def expected(epoch: int, world: World = WORLD) -> list[list[str]]:
    return batches_of_rank(epoch_keys(COUNTS, 3, epoch, 2), world)


def loader_of(dataset: Any, workers: int, lives_on: bool = False) -> Any:
    return DataLoader(dataset, dataset._world.batch_size, num_workers=workers, persistent_workers=lives_on)


@pytest.mark.parametrize(("workers", "lives_on"), [(0, False), (1, True), (2, False), (2, True), (3, True)])
def test_every_epoch_is_its_runs(workers: int, lives_on: bool) -> None:
    dataset = dataset_of(COUNTS, WORLD, 3, 2)
    loader = loader_of(dataset, workers, lives_on)
    for epoch in (0, 1, 1, 4):  # twice without set_epoch is the same epoch again
        dataset.set_epoch(epoch)
        batches = expected(epoch)
        assert (len(dataset), len(loader)) == (22, 8)
        assert keys_of(loader) == batches
        assert [len(batch) for batch in batches] == [3] * 7 + [1]


@pytest.mark.parametrize(("last_batch", "num_samples", "num_batches"), [("short", 22, 8), ("pad", 24, 8), ("drop", 21, 7)])
def test_lengths_are_what_comes(last_batch: Any, num_samples: int, num_batches: int) -> None:
    """44 samples, 6 at a step: 7 steps, 2 are left, one for each rank."""
    dataset = dataset_of(COUNTS, World(0, 2, 3, last_batch), None)
    loader = loader_of(dataset, 2)
    batches = keys_of(loader)
    assert (len(dataset), len(loader)) == (sum(map(len, batches)), len(batches)) == (num_samples, num_batches)


def test_workers_without_a_batch() -> None:
    dataset = dataset_of([4], World(0, 1, 3, "short"), None)
    assert keys_of(loader_of(dataset, 3)) == [["0/0", "0/1", "0/2"], ["0/3"]]


@pytest.mark.parametrize(("workers", "lives_on"), [(0, False), (2, False), (2, True)])
def test_a_pass_that_was_broken_off_leaves_nothing_to_the_next(workers: int, lives_on: bool) -> None:
    dataset = dataset_of(COUNTS, WORLD, 3, 2)
    loader = loader_of(dataset, workers, lives_on)
    for num_batches in (1, 3):
        stream = iter(loader)
        assert [list(next(stream)["__key__"]) for _ in range(num_batches)] == expected(0)[:num_batches]
    assert keys_of(loader) == expected(0)
    dataset.set_epoch(2)
    assert keys_of(loader) == expected(2)


def test_two_loaders_at_once() -> None:
    dataset = dataset_of(COUNTS, WORLD, 3, 2)
    both = zip(keys_of(loader_of(dataset, 0)), keys_of(loader_of(dataset, 2)), strict=True)
    assert all(one == other for one, other in both)


def test_a_copy_is_a_dataset_of_its_own() -> None:
    """Its workers that live on hear of its epochs, and the original's do not."""
    dataset = dataset_of(COUNTS, WORLD, 3, 2)
    other = copy.deepcopy(dataset)
    loader = loader_of(other, 1, True)
    assert keys_of(loader) == expected(0)
    other.set_epoch(3)
    assert keys_of(loader) == expected(3)
    assert dataset.epoch == 0
    assert keys_of(loader_of(dataset, 1)) == expected(0)


@pytest.fixture(params=["wds", "mds"])
def stored(request: pytest.FixtureRequest, tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path) -> str:
    """44 samples in shards of 9."""
    lines = b"".join(b'{"number": %d}\n' % i for i in range(44))
    build(tree({"a.jsonl": lines}) / "a.jsonl", tmp_path / "shards", request.param, source=Jsonl(), shard_samples=9)
    return str(tmp_path / "shards")


def stored_keys(epoch: int) -> list[str]:
    keys = [f"a/{offset:012d}" for offset in [14 * i for i in range(10)] + [140 + 15 * i for i in range(34)]]
    return [keys[9 * shard + row] for shard, row in epoch_places([9, 9, 9, 9, 8], 3, epoch, 2)]


def test_spawned_workers_read_hear_of_epochs_and_go_on(stored: str) -> None:
    options = LoaderOptions(rank=1, world_size=2, block_shards=2)
    dataset = open_dataset(stored, batch_size=3, shuffle=True, seed=3, options=options)
    next(iter(dataset))  # a shard is open, and must not be sent along
    loader: Any = DataLoader(dataset, 3, num_workers=1, persistent_workers=True, multiprocessing_context="spawn")
    assert keys_of(loader) == batches_of_rank(stored_keys(0), WORLD)
    dataset.set_epoch(1)
    assert keys_of(loader) == batches_of_rank(stored_keys(1), WORLD)
    dataset.load_state_dict(dataset.state_at(2))
    assert len(loader) == 8
    assert keys_of(loader) == batches_of_rank(stored_keys(1)[12:], WORLD)
    assert len(loader) == 8
    assert keys_of(loader) == batches_of_rank(stored_keys(1), WORLD)


def resources() -> tuple[int, list[str]]:
    """Open file descriptors, and what lies in shared memory."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), sorted(name for name in os.listdir("/dev/shm") if str(os.getpid()) in name)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc, where open files are counted")
def test_nothing_is_left(stored: str) -> None:
    def train(workers: int, lives_on: bool) -> None:
        dataset = open_dataset(stored, batch_size=3, shuffle=True, decode="tokens")
        loader = loader_of(dataset, workers, lives_on)
        for epoch in range(2):
            dataset.set_epoch(epoch)
            assert sum(map(len, keys_of(loader))) == 44
        next(iter(loader))  # and one that is broken off
        dataset.as_map()["a/000000000014"]

    train(1, True)  # what torch itself sets up once
    num_files, shared = resources()
    for workers, lives_on in ((0, False), (2, False), (2, True)):
        train(workers, lives_on)

    def is_as_before() -> bool:
        now = resources()
        return now[0] <= num_files and set(now[1]) <= set(shared)

    wait_until(is_as_before, 20)  # what torch's own threads close


def _late(worker: int) -> None:
    if worker == 1:
        time.sleep(1.0)


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
@pytest.mark.parametrize("change", ["epoch", "place"])
def test_what_is_set_during_a_pass_is_for_the_next(start_method: str, change: str) -> None:
    """A worker that starts late must read what it was started for, and leave to the next pass what was set for that."""
    counts, world = [30, 30], World(0, 1, 4, "short")
    dataset = dataset_of(counts, world, 3)
    later = dataset_of(counts, world, 3).state_at(10)
    loader = DataLoader(dataset, 4, num_workers=2, multiprocessing_context=start_method, worker_init_fn=_late)
    stream = iter(loader)
    first = next(stream)
    if change == "epoch":
        dataset.set_epoch(1)
    else:
        dataset.load_state_dict(later)
    assert list(chain.from_iterable(keys_of([first, *stream]))) == epoch_keys(counts, 3, 0, 8)
    expected = epoch_keys(counts, 3, 1, 8) if change == "epoch" else epoch_keys(counts, 3, 0, 8)[40:]
    assert list(chain.from_iterable(keys_of(loader))) == expected


def test_an_epoch_that_is_shuffled_alike_again_is_told_once_a_pass(caplog: pytest.LogCaptureFixture) -> None:
    told = "epoch 0 is read again, in the same order; set_epoch before each pass shuffles anew"
    dataset = dataset_of([5, 3], World(0, 1, 4, "short"), 3)
    assert len(list(dataset)) == 8
    assert caplog.messages == []
    dataset.set_epoch(0)
    assert len(list(dataset)) == 8
    assert caplog.messages == [told]
    dataset.set_epoch(1)
    dataset.load_state_dict(dataset.state_at(1))
    list(dataset)
    in_order = dataset_of([5, 3], World(0, 1, 4, "short"), None)
    assert len([*in_order, *in_order]) == 16
    assert caplog.messages == [told]
