"""Stops torchdata's StatefulDataLoader from going on elsewhere than it stopped, in the same world or by its state in another."""

import io
import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")
stateful_dataloader = pytest.importorskip("torchdata.stateful_dataloader", reason="needs the extra train")

from worlds import QUIET, Pass, batches_of_rank, dataset_of, epoch_keys, global_batches, keys_of, raised_by  # noqa: E402

from shardtools.errors import UsageError  # noqa: E402
from shardtools.loaders._world import World  # noqa: E402

pytestmark = QUIET

COUNTS = [7, 0, 5, 8]
"""20 samples: of two ranks with batches of 3, three steps and two samples, one for each."""
EPOCH = 2


def order() -> list[str]:
    return epoch_keys(COUNTS, 3, EPOCH, 2)


def rank_of(world: World) -> Any:
    return dataset_of(COUNTS, world, 3, 2)


def loader_of(dataset: Any, workers: int, every: int = 1, lives_on: bool = False) -> Any:
    return stateful_dataloader.StatefulDataLoader(
        dataset, dataset._world.batch_size, num_workers=workers, snapshot_every_n_steps=every, persistent_workers=lives_on
    )


def states(world: World, workers: int, every: int) -> list[Any]:
    """The state after each batch of one pass, before the first and after the last too; saved in both ways in turn."""
    dataset = rank_of(world)
    dataset.set_epoch(EPOCH)
    loader = loader_of(dataset, workers, every)
    stream, found = iter(loader), [json.loads(json.dumps(loader.state_dict()))]
    for _ in stream:
        if len(found) % 2:
            file = io.BytesIO()
            torch.save(loader.state_dict(), file)
            file.seek(0)
            found.append(torch.load(file, weights_only=True))
        else:
            found.append(json.loads(json.dumps(loader.state_dict())))
    return found


@pytest.mark.parametrize(("workers", "every"), [(0, 1), (1, 1), (2, 1), (2, 3), (3, 1)])
def test_the_same_world_goes_on_at_every_step(workers: int, every: int) -> None:
    world = World(0, 1, 3, "short")
    batches = batches_of_rank(order(), world)
    found = states(world, workers, every)
    assert len(found) == len(batches) + 1 == 8
    for num_batches, state in enumerate(found):
        dataset = rank_of(world)
        loader = loader_of(dataset, workers, every)
        loader.load_state_dict(state)
        assert keys_of(loader) == batches[num_batches:]
        assert dataset.epoch == EPOCH  # the epoch of the state, whoever loaded it
        if num_batches in (2, 7):
            assert keys_of(loader) == batches


@pytest.mark.parametrize(("workers", "every"), [(0, 1), (1, 3), (2, 1), (3, 3)])
def test_the_dataset_goes_on_in_any_world_by_the_loaders_state(monkeypatch: pytest.MonkeyPatch, workers: int, every: int) -> None:
    """Of two ranks: the state of either says where both are. The rank behind the last step has it all, whatever it got of it."""
    for rank in range(2):
        for num_steps, state in enumerate(states(World(rank, 2, 3, "short"), workers, every)):
            left = order()[6 * num_steps :]
            for new_world, new_batch, new_workers in ((1, 3, 0), (3, 2, 2), (2, 5, 1)):
                steps = global_batches(left, new_batch, new_world, "short")
                for new_rank in range(new_world):
                    dataset = rank_of(World(new_rank, new_world, new_batch, "short"))
                    dataset.load_state_dict(state)
                    assert Pass(monkeypatch, dataset, new_workers).batches == [step[new_rank] for step in steps if step[new_rank]]


def test_a_resumed_loader_is_resumed_again() -> None:
    """First in another world, then in its own, with workers that live on."""
    dataset = rank_of(World(0, 1, 4, "short"))
    dataset.load_state_dict(states(World(1, 2, 3, "short"), 2, 1)[1])
    loader = loader_of(dataset, 2, lives_on=True)
    stream, left = iter(loader), order()[6:]
    had = [key for _ in range(2) for key in next(stream)["__key__"]]
    state = loader.state_dict()

    again = rank_of(World(0, 1, 4, "short"))
    loader = loader_of(again, 2, lives_on=True)
    loader.load_state_dict(state)
    assert had + [key for batch in keys_of(loader) for key in batch] == left
    again.set_epoch(EPOCH + 1)
    assert [key for batch in keys_of(loader) for key in batch] == epoch_keys(COUNTS, 3, EPOCH + 1, 2)
    again.load_state_dict(state)
    assert had + [key for batch in keys_of(loader) for key in batch] == left


def test_inside_a_batch_one_worker_goes_on_and_is_resumed() -> None:
    world = World(0, 1, 3, "short")
    dataset = rank_of(world)
    dataset.set_epoch(EPOCH)
    stream = iter(dataset)
    had = [next(stream)["__key__"] for _ in range(4)]
    resumed = rank_of(world)
    resumed.load_state_dict(dataset.state_dict())
    loader = loader_of(resumed, 1)
    stream = iter(loader)
    had += [key for _ in range(2) for key in next(stream)["__key__"]]
    again = rank_of(world)
    again.load_state_dict(loader.state_dict())
    assert had + [sample["__key__"] for sample in again] == order()


@pytest.mark.parametrize(
    ("new", "workers"),
    [(World(0, 3, 3, "short"), 2), (World(0, 2, 4, "short"), 2), (World(0, 2, 3, "drop"), 2), (World(0, 2, 3, "short"), 1)],
)
def test_the_loader_itself_goes_on_in_its_own_world_alone(new: World, workers: int) -> None:
    loader = loader_of(rank_of(new), workers)
    loader.load_state_dict(states(World(0, 2, 3, "short"), 2, 1)[1])
    error = raised_by(lambda: next(iter(loader)))
    assert isinstance(error, UsageError)
    assert "that of 2 ranks of 2 workers; give it to load_state_dict of the dataset instead" in str(error)


@pytest.mark.filterwarnings("ignore")  # torchdata's, of datasets without a state
@pytest.mark.parametrize("workers", [0, 1])
def test_the_state_of_a_loader_of_something_else_is_refused(workers: int) -> None:
    loader = stateful_dataloader.StatefulDataLoader([1, 2, 3], num_workers=workers)
    next(iter(loader))
    with pytest.raises(UsageError, match=r"expected the state of a dataset \(shardtools\.loader/1\)"):
        rank_of(World(0, 1, 1, "short")).load_state_dict(loader.state_dict())


def test_a_loader_of_other_batches_than_the_datasets_is_refused() -> None:
    """Nobody can say which samples it has had."""
    dataset = rank_of(World(0, 1, 1, "short"))
    loader = stateful_dataloader.StatefulDataLoader(dataset, batch_size=4, num_workers=2)
    next(iter(loader))
    with pytest.raises(UsageError, match=r"with the dataset's batch_size of 1, got the state of one that made 1 batches of 4 samples"):
        rank_of(World(0, 1, 1, "short")).load_state_dict(loader.state_dict())
