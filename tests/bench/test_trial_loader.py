"""DataLoader arguments are valid for any settings, and epochs begin and end as they are said to; stops settings torch fails over late."""

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from shardtools.bench.spec import Settings  # noqa: E402
from shardtools.bench.trial._epochs import Epochs, Start  # noqa: E402
from shardtools.bench.trial.loader import loader_kwargs  # noqa: E402
from shardtools.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.train

DATA = TensorDataset(torch.arange(10))


@pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:'pin_memory' argument is set")
@pytest.mark.parametrize("num_workers", [0, 1, 5])
def test_torch_takes_them(num_workers: int) -> None:
    for prefetch, pin, persistent, method, in_order in product((1, 8), (False, True), (False, True), (None, "spawn"), (False, True)):
        settings = Settings(num_workers, prefetch, pin, persistent, method, in_order)
        loader = DataLoader(DATA, batch_size=4, **loader_kwargs(settings, 7.0))
        assert loader.num_workers == num_workers
        assert loader.pin_memory is pin
        assert not loader.drop_last
        if num_workers:
            assert (loader.prefetch_factor, loader.persistent_workers, loader.timeout) == (prefetch, persistent, 7.0)


def test_without_workers_torch_refuses_the_naive_arguments() -> None:
    """Else leaving them out would be for nothing."""
    for name, value in {"prefetch_factor": 2, "timeout": 5, "persistent_workers": True}.items():
        assert name not in loader_kwargs(Settings(num_workers=0))
        if name != "timeout":
            with pytest.raises(ValueError, match=name):
                DataLoader(DATA, num_workers=0, **{name: value})


@pytest.mark.parametrize(("settings", "words"), [(Settings(-1), "--num-workers"), (Settings(2, 0), "--prefetch-factor")])
def test_impossible_numbers_are_refused(settings: Settings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        loader_kwargs(settings)


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


class Slow(IterableDataset[int]):
    """3 s to the first sample, 1 s to each other."""

    def __init__(self, clock: Clock, num_samples: int = 4) -> None:
        self.clock, self.num_samples, self.told = clock, num_samples, []  # type: list[int]

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)

    def __iter__(self) -> Any:
        for i in range(self.num_samples):
            self.clock.at += 1.0 if i else 3.0
            yield i


def test_starts_are_timed_apart_and_each_epoch_is_told() -> None:
    clock = Clock()
    data = Slow(clock)
    epochs = Epochs(DataLoader(data, batch_size=2), clock)
    first, batches = epochs.begin()
    assert first.tolist() == [0, 1]
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert list(epochs.rest()) == []
    epochs.begin()
    assert [batch.tolist() for batch in epochs.rest()] == [[2, 3]]
    assert epochs.starts == [Start(0.0, 4.0), Start(0.0, 4.0)]
    assert data.told == [0, 1]


def test_no_batch_is_a_mistake_of_the_user() -> None:
    with pytest.raises(UsageError, match="the data is empty"):
        Epochs(DataLoader(Slow(Clock(), 0), batch_size=2), Clock()).begin()


def test_the_end_joins_the_workers() -> None:
    import multiprocessing
    import time

    others = set(multiprocessing.active_children())
    epochs = Epochs(DataLoader(DATA, batch_size=2, **loader_kwargs(Settings(2))), time.perf_counter)
    _, batches = epochs.begin()
    assert len(set(multiprocessing.active_children()) - others) == 2
    del batches
    assert epochs.end() > 0
    assert set(multiprocessing.active_children()) <= others
