"""Stops a resume that repeats or skips: runs resumed again and again, plain DataLoaders, passes after the resumed one, wrong states."""

import io
import json
import random
from itertools import chain
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from torch.utils.data import DataLoader  # noqa: E402
from worlds import QUIET, Pass, batches_of_rank, dataset_of, epoch_keys, global_batches, keys_of, raised_by  # noqa: E402

from shardtools.errors import UsageError  # noqa: E402
from shardtools.loaders._world import World  # noqa: E402

pytestmark = QUIET

COUNTS = [7, 0, 5, 9, 20, 3]
ONE = World(0, 1, 3, "short")


def order(epoch: int = 0) -> list[str]:
    return epoch_keys(COUNTS, 3, epoch, 2)


def dataset_at(num_batches: int, world: World = ONE) -> Any:
    """Resumed behind so many batches of one rank."""
    dataset = dataset_of(COUNTS, world, 3, 2)
    dataset.load_state_dict(dataset_of(COUNTS, ONE, 3, 2).state_at(num_batches))
    return dataset


def saved(state: Any, with_json: bool) -> Any:
    if with_json:
        return json.loads(json.dumps(state))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("number", range(100))
def test_a_run_that_is_broken_off_again_and_again_is_the_unbroken_run(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    numbers = random.Random(number)
    counts = [numbers.choice([0, 1, 3, 8, 40]) for _ in range(numbers.randint(1, 9))] + [5]
    epoch, block_shards = numbers.choice([0, 6]), numbers.choice([1, 2, 8])
    keys, had, state = epoch_keys(counts, 11, epoch, block_shards), 0, None
    for _ in range(5):
        batch, world, workers = numbers.randint(1, 4), numbers.randint(1, 4), numbers.randint(0, 3)
        steps = global_batches(keys[had:], batch, world, "short")
        stop = numbers.randint(0, min(len(steps), 4))
        print(counts, epoch, block_shards, had, batch, world, workers, stop)
        ranks = [dataset_of(counts, World(rank, world, batch, "short"), 11, block_shards) for rank in range(world)]
        for rank, dataset in enumerate(ranks):
            if state is None:
                dataset.set_epoch(epoch)
            else:
                dataset.load_state_dict(state)
                dataset.set_epoch(epoch)  # as the loop over epochs does
            assert Pass(monkeypatch, dataset, workers).batches == [step[rank] for step in steps if step[rank]]
        state = saved(numbers.choice(ranks).state_at(stop), with_json=numbers.random() < 0.5)
        had = had + len(list(chain.from_iterable(chain.from_iterable(steps[:stop]))))


@pytest.mark.parametrize(("workers", "lives_on"), [(0, False), (1, False), (2, False), (2, True)])
def test_the_pass_after_the_resumed_one_is_whole(workers: int, lives_on: bool) -> None:
    dataset = dataset_at(5)
    loader: Any = DataLoader(dataset, 3, num_workers=workers, persistent_workers=lives_on)
    rest = order()[15:]
    assert (len(dataset), len(loader)) == (44, 15)
    assert keys_of(loader) == batches_of_rank(rest, ONE)
    assert dataset.state_at(2)["start"] == 15
    # Again the same epoch, with torch seeded as it may have been before.
    assert (len(dataset), len(loader)) == (44, 15)
    assert keys_of(loader) == batches_of_rank(order(), ONE)
    assert len(loader) == 15
    again = dataset_of(COUNTS, ONE, 3, 2)
    again.load_state_dict(dataset.state_at(2))
    assert keys_of(DataLoader(again, 3)) == batches_of_rank(order()[6:], ONE)
    dataset.set_epoch(1)
    assert keys_of(loader) == batches_of_rank(order(1), ONE)


@pytest.mark.parametrize("workers", [1, 2])
def test_torch_seeded_anew_for_every_pass(workers: int) -> None:
    dataset = dataset_at(5)
    loader: Any = DataLoader(dataset, 3, num_workers=workers)
    for keys in (order()[15:], order(), order()):
        torch.manual_seed(0)
        assert keys_of(loader) == batches_of_rank(keys, ONE)


def test_another_loader_with_more_workers_reads_the_whole() -> None:
    dataset = dataset_at(5)
    for workers, keys in ((1, order()[15:]), (3, order()), (0, order())):
        torch.manual_seed(0)
        assert keys_of(DataLoader(dataset, 3, num_workers=workers)) == batches_of_rank(keys, ONE)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loader_is_resumed_by_counting_its_batches(workers: int) -> None:
    dataset = dataset_of(COUNTS, ONE, 3, 2)
    dataset.set_epoch(4)
    for num_batches in (0, 1, 7, 14, 15):
        stream = iter(DataLoader(dataset, 3, num_workers=workers))
        had = [key for _ in range(num_batches) for key in next(stream)["__key__"]]
        resumed = dataset_of(COUNTS, World(0, 1, 5, "short"), 3, 2)
        resumed.load_state_dict(dataset.state_at(num_batches))
        assert resumed.epoch == 4
        assert had + [sample["__key__"] for sample in resumed] == order(4)


def test_where_workers_read_ahead_the_owner_cannot_say_where_it_stands() -> None:
    dataset = dataset_at(5)
    assert dataset.state_dict()["start"] == 15
    stream = iter(DataLoader(dataset, 3, num_workers=1))
    next(stream)
    with pytest.raises(UsageError, match=r"pass the number of batches that were had to state_at\(num_batches\)"):
        dataset.state_dict()
    dataset.set_epoch(1)
    assert dataset.state_dict()["epoch"] == 1


def test_the_state_between_two_epochs_is_the_beginning_of_the_next() -> None:
    dataset = dataset_of(COUNTS, ONE, 3, 2)
    assert keys_of(DataLoader(dataset, 3)) == batches_of_rank(order(), ONE)
    dataset.set_epoch(1)
    state = dataset.state_dict()
    assert (state["epoch"], state["start"], state["num_samples"]) == (1, 0, 0)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_place_inside_a_batch_is_gone_on_with_by_one_reader(num_workers: int) -> None:
    dataset = dataset_of(COUNTS, World(0, 1, 4, "short"), 3, 2)
    stream = iter(dataset)
    had = [next(stream)["__key__"] for _ in range(6)]
    same = dataset_of(COUNTS, World(0, 1, 4, "short"), 3, 2)
    same.load_state_dict(dataset.state_dict())
    loader: Any = DataLoader(same, 4, num_workers=num_workers)
    assert (len(same), len(loader)) == (44, 11)
    assert had + [key for batch in keys_of(loader) for key in batch] == order()
    # A world of other batches goes on there as well: what one rank has had is a run of positions.
    other = dataset_of(COUNTS, World(0, 1, 5, "short"), 3, 2)
    other.load_state_dict(dataset.state_dict())
    assert had + [sample["__key__"] for sample in other] == order()


def test_the_place_inside_a_batch_is_no_place_for_several() -> None:
    def worlds(batch: int, world: int) -> Any:
        return dataset_of([10], World(0, world, batch, "short"), None)

    dataset = worlds(4, 1)
    stream = iter(dataset)
    for _ in range(6):
        next(stream)
    same = worlds(4, 1)
    same.load_state_dict(dataset.state_dict())
    error = raised_by(lambda: next(iter(DataLoader(same, 4, num_workers=2))))
    assert isinstance(error, UsageError)
    assert "expected a place between two batches for several workers" in str(error)
    # Of several ranks nobody knows what the others have of that batch.
    two = worlds(2, 2)
    next(iter(two))
    with pytest.raises(UsageError, match="expected a place between two batches of 2, got one 1 samples into a batch"):
        worlds(4, 1).load_state_dict(two.state_dict())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 5}, "got one with seed 5 in place of 3"),
        ({"dataset": "x"}, "got one with dataset x in place of"),
        ({"block_shards": 9}, "got one with block_shards 9 in place of 2"),
        ({"num_positions": 45}, "got one with num_positions 45 in place of 44"),
        ({"format": "other"}, "expected the state of a dataset"),
        ({"start": 45}, "expected a place in the epoch, got "),
        ({"num_samples": -3}, "expected a place in the epoch, got "),
        ({"epoch": 2**63}, "expected a place in the epoch, got "),
        ({"epoch": None}, "expected a whole state, got one with this fault: TypeError"),
        ({"bad": 1}, "expected a whole state, got one with this fault: AttributeError"),
        ({"num_workers": 2, "worker": 1}, "got that of worker 1 of 2"),
    ],
)
def test_a_state_of_something_else_is_refused(change: dict[str, Any], sentence: str) -> None:
    dataset = dataset_of(COUNTS, ONE, 3, 2)
    with pytest.raises(UsageError, match=sentence):
        dataset.load_state_dict({**dataset.state_at(1), **change})
    assert keys_of(DataLoader(dataset, 3)) == batches_of_rank(order(), ONE)


@pytest.mark.parametrize("name", ["epoch", "rank", "bad"])
def test_a_state_that_is_not_whole_is_refused(name: str) -> None:
    dataset = dataset_of(COUNTS, ONE, 3, 2)
    state = dataset.state_at(1)
    del state[name]
    with pytest.raises(UsageError, match=f"expected a whole state, got one with this fault: KeyError: '{name}'"):
        dataset.load_state_dict(state)


@pytest.mark.parametrize("epoch", [-1, 2**63])
def test_epochs_are_numbers_from_0(epoch: int) -> None:
    with pytest.raises(UsageError, match=r"expected an epoch of (0 or more|at most)"):
        dataset_of(COUNTS, ONE, 3, 2).set_epoch(epoch)


def test_batches_are_counted_from_0() -> None:
    with pytest.raises(UsageError, match="expected a number of batches of 0 or more"):
        dataset_of(COUNTS, ONE, 3, 2).state_at(-1)
