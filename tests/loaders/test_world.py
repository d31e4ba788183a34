"""Stops ranks that read everything because nobody told them apart, and last batches other than the documented ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from shardtools.errors import UsageError  # noqa: E402
from shardtools.loaders import LoaderOptions, open_dataset  # noqa: E402
from shardtools.loaders._world import World  # noqa: E402

pytestmark = pytest.mark.train


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{i}\n" for i in range(10)))
    return str(path)


def numbers(uri: str, **options: Any) -> list[int]:
    return [int(sample["json"]) for sample in open_dataset(uri, batch_size=2, options=LoaderOptions(**options))]


LAST = {
    # 23 positions, 4 ranks, batches of 3: one whole step, and 11 samples that make no whole one.
    "short": [[0, 1, 2, 12, 13, 14], [3, 4, 5, 15, 16, 17], [6, 7, 8, 18, 19, 20], [9, 10, 11, 21, 22]],
    "pad": [[0, 1, 2, 12, 13, 14], [3, 4, 5, 15, 16, 17], [6, 7, 8, 18, 19, 20], [9, 10, 11, 21, 22, 0]],
    "drop": [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]],
}


@pytest.mark.parametrize("last_batch", LAST)
def test_what_becomes_of_the_last_batch(last_batch: Any) -> None:
    worlds = [World(rank, 4, 3, last_batch) for rank in range(4)]
    found = [world.positions(0, 23, np.arange(world.num_batches(23))).tolist() for world in worlds]
    assert found == LAST[last_batch]
    assert [world.num_samples(23) for world in worlds] == [len(positions) for positions in found]


def test_fewer_samples_than_ranks() -> None:
    """The documented price of ``short``: a rank with a batch less."""
    worlds = [World(rank, 4, 3, "short") for rank in range(4)]
    assert [world.positions(12, 14, np.arange(1)).tolist() for world in worlds] == [[12], [13], [], []]
    assert [world.num_batches(2) for world in worlds] == [1, 1, 0, 0]


def test_pad_fills_a_batch_that_is_larger_than_the_epoch() -> None:
    assert World(1, 2, 4, "pad").positions(0, 3, np.arange(1)).tolist() == [1, 2, 0, 1]
    # Behind a place that was loaded, it is the first of the epoch that come again.
    assert World(1, 2, 4, "pad").positions(8, 10, np.arange(1)).tolist() == [2, 3, 4, 5]


def test_no_group_and_no_rank_is_one_reader_of_all(lines: str) -> None:
    assert numbers(lines) == list(range(10))
    assert numbers(lines, rank=1, world_size=2) == [2, 3, 6, 7, 9]


def test_ranks_that_torchrun_started_without_a_group_are_refused(lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"call torch\.distributed\.init_process_group before the dataset is opened"):
        open_dataset(lines)
    assert numbers(lines, rank=1, world_size=2) == [2, 3, 6, 7, 9]


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/init", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_the_group_says_rank_and_world_unless_the_options_do(lines: str) -> None:
    assert numbers(lines) == list(range(10))
    assert numbers(lines, rank=0, world_size=2) == [0, 1, 4, 5, 8]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rank": 2, "world_size": 2}, "expected a rank of at most 1, got 2"),
        ({"rank": -1, "world_size": 2}, "expected a rank of 0 or more, got -1"),
        ({"rank": 0}, "expected rank and world_size together, got rank=0 and world_size=None"),
        ({"world_size": 1}, "expected rank and world_size together, got rank=None and world_size=1"),
        ({"last_batch": "keep"}, "expected last_batch as short, pad or drop, got 'keep'"),
        ({"block_shards": 0}, "expected block_shards of 1 or more, got 0"),
    ],
)
def test_worlds_that_are_none(lines: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        open_dataset(lines, options=LoaderOptions(**options))


def test_other_arguments_that_are_wrong(lines: str) -> None:
    with pytest.raises(UsageError, match="expected a batch size of 1 or more, got 0"):
        open_dataset(lines, batch_size=0)
    for seed in (-1, 2**64):
        with pytest.raises(
            UsageError, match=r"expected a seed of (0 or more, got -1|at most 18446744073709551615, got 18446744073709551616)"
        ):
            open_dataset(lines, seed=seed)
