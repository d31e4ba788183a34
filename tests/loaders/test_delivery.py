"""Stops samples that come twice or never, an order that depends on the world, and a resume that is not the rest of the epoch."""

import json
import random
from itertools import chain
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from worlds import Numbers, Pass, dataset_of, epoch_keys, global_batches, padded  # noqa: E402

from shardtools.loaders._world import World  # noqa: E402

pytestmark = pytest.mark.train

NUM_CASES = 400


def draw(numbers: random.Random) -> dict[str, Any]:
    return {
        "counts": [numbers.choice([0, 1, 2, 3, 7, 20]) for _ in range(numbers.randint(1, 12))] + [numbers.randint(1, 9)],
        "seed": numbers.choice([None, 0, 1, 2**63]),
        "block_shards": numbers.choice([1, 2, 3, 8]),
        "batch": numbers.choice([1, 2, 3, 5, 8]),
        "world": numbers.choice([1, 2, 3, 4]),
        "workers": numbers.choice([0, 1, 2, 3]),
        "epoch": numbers.choice([0, 1, 5]),
        "last_batch": numbers.choice(["short", "short", "pad", "drop"]),
        "new_batch": numbers.choice([1, 2, 3, 5]),
        "new_world": numbers.choice([1, 2, 3, 5]),
        "new_workers": numbers.choice([0, 1, 2, 3]),
        # 7 is the seed of the workers of the pass before: somebody seeds anew for every pass.
        "new_seed": numbers.choice([7, 99]),
        "stop": numbers.random(),
    }


def ranks(case: dict[str, Any], batch: int, world: int) -> list[Any]:
    worlds = [World(rank, world, batch, case["last_batch"]) for rank in range(world)]
    made = [dataset_of(case["counts"], one, case["seed"], case["block_shards"]) for one in worlds]
    for dataset in made:
        dataset.set_epoch(case["epoch"])
    return made


def epoch_order(case: dict[str, Any]) -> list[str]:
    order = epoch_keys(case["counts"], case["seed"], case["epoch"], case["block_shards"])
    assert sorted(order) == sorted(Numbers(case["counts"]).keys())
    return order


def expected(case: dict[str, Any], order: list[str], left: list[str], batch: int, world: int) -> list[list[list[str]]]:
    filled = padded(left, order, batch * world) if case["last_batch"] == "pad" else left
    return global_batches(filled, batch, world, case["last_batch"])


def check(monkeypatch: pytest.MonkeyPatch, datasets: list[Any], workers: int, steps: list[list[list[str]]]) -> None:
    for rank, dataset in enumerate(datasets):
        batches = [step[rank] for step in steps if step[rank]]
        assert Pass(monkeypatch, dataset, workers).batches == batches


@pytest.mark.parametrize("number", range(NUM_CASES))
def test_every_world_reads_the_runs_of_the_epoch_and_goes_on_in_any_other(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    case = draw(random.Random(number))
    print(case)
    order = epoch_order(case)
    steps = expected(case, order, order, case["batch"], case["world"])
    check(monkeypatch, ranks(case, case["batch"], case["world"]), case["workers"], steps)

    num_steps = int(case["stop"] * (len(steps) + 1))
    had = min(num_steps * case["batch"] * case["world"], len(order))
    state = json.loads(json.dumps(ranks(case, case["batch"], case["world"])[number % case["world"]].state_at(num_steps)))
    resumed = ranks(case, case["new_batch"], case["new_world"])
    for dataset in resumed:
        dataset.load_state_dict(state)
        assert dataset.epoch == case["epoch"]
    rest = expected(case, order, order[had:], case["new_batch"], case["new_world"])
    check(monkeypatch, resumed, case["new_workers"], rest)
    # The pass after it is a whole one.
    whole = expected(case, order, order, case["new_batch"], case["new_world"])
    for rank, dataset in enumerate(resumed):
        assert len(dataset) == sum(len(step[rank]) for step in whole)
        assert Pass(monkeypatch, dataset, case["new_workers"], seed=case["new_seed"]).batches == [
            step[rank] for step in whole if step[rank]
        ]
    if case["last_batch"] == "short":
        keys = [*order[:had], *chain.from_iterable(chain.from_iterable(rest))]
        assert keys == order


@pytest.mark.parametrize(("batch", "world", "workers"), [(6, 1, 0), (3, 2, 1), (2, 3, 2), (1, 6, 3)])
def test_worlds_of_one_product_see_the_same_global_batches(monkeypatch: pytest.MonkeyPatch, batch: int, world: int, workers: int) -> None:
    case = {"counts": [7, 1, 20, 3, 11], "seed": 3, "block_shards": 2, "epoch": 4, "last_batch": "short"}
    streams = [Pass(monkeypatch, dataset, workers).batches for dataset in ranks(case, batch, world)]
    found = [sorted(chain.from_iterable(step)) for step in zip(*streams, strict=True)]
    single = Pass(monkeypatch, ranks(case, 6, 1)[0], 0).batches
    assert found == [sorted(step) for step in single]
    assert len(single) == 7 and len(single[-1]) == 42 - 36
