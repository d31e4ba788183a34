"""The window over real DataLoaders: stops samples that were dropped from being counted, and time that early leaving costs."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from shardtools.bench.window import WindowRule, measure

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore:This DataLoader will create")]


class Split(IterableDataset[int]):
    """100 samples, each worker its share."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        return iter(range(100)[worker.id :: worker.num_workers]) if worker else iter(range(100))


@pytest.mark.parametrize(
    ("num_workers", "drop_last", "pass_samples"),
    [(0, True, 96), (1, True, 96), (2, True, 96), (3, True, 96), (4, True, 64), (0, False, 100), (3, False, 100), (4, False, 100)],
)
def test_samples_that_drop_last_dropped_are_not_counted(num_workers: int, drop_last: bool, pass_samples: int) -> None:
    """Each worker drops its own rest: of 25 samples a worker, with batches of 16, nine."""
    prefetch = {"prefetch_factor": 1, "persistent_workers": True} if num_workers else {}
    loader: DataLoader[int] = DataLoader(Split(), 16, num_workers=num_workers, drop_last=drop_last, **prefetch)  # type: ignore[arg-type]
    rule = WindowRule(num_workers, 1, min_steps=20, min_seconds=0, warm_seconds=0)
    found = measure(iter(loader), loader.__iter__, len, rule)
    assert found.is_looped
    assert found.pass_samples == pass_samples
    assert found.samples == pass_samples * found.num_passes
    assert found.steps >= rule.steps


class Slow(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        time.sleep(0.03)
        return index

    def __len__(self) -> int:
        return 8


def test_passes_do_not_pay_for_batches_of_a_pass_that_was_left_early() -> None:
    """One worker, a batch in 30 ms, 6 ahead: after a complete pass the next first batch takes 30 ms; after one left early, 210."""
    loader: DataLoader[Any] = DataLoader(Slow(), 1, num_workers=1, prefetch_factor=6, persistent_workers=True)
    found = measure(iter(loader), loader.__iter__, len, WindowRule(1, 6, min_steps=1, min_seconds=0, warm_seconds=0))
    assert found.num_passes == 8
    next(iter(loader))
    start = time.perf_counter()
    next(iter(loader))
    left_early_s = time.perf_counter() - start
    assert left_early_s > 0.18
    assert found.restart_s / found.num_passes < left_early_s / 2
