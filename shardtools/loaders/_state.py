"""Where an epoch stands, as plain data, and how it is gone on with in another world."""

import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from shardtools.errors import UsageError
from shardtools.loaders._whole import whole
from shardtools.loaders._world import World

FORMAT = "shardtools.loader/1"


class Place(NamedTuple):
    """One reader's place: it started at position ``start`` of its epoch and has had ``num_samples`` since."""

    epoch: int
    start: int
    num_samples: int
    worker: int = 0
    num_workers: int = 1


def as_state(place: Place, world: World, identity: Mapping[str, Any], bad: Mapping[str, int]) -> dict[str, Any]:
    """Plain data that JSON and ``torch.save`` take."""
    return {
        "format": FORMAT,
        **place._asdict(),
        "rank": world.rank,
        "world_size": world.world_size,
        "batch_size": world.batch_size,
        "last_batch": world.last_batch,
        **identity,
        "bad": dict(bad),
    }


def parse_state(state: Mapping[str, Any], identity: Mapping[str, Any]) -> tuple[Place, World, dict[str, int]]:
    """Place, the world it was in, and bad samples by reason. Raises UsageError for the state of something else."""
    if state.get("format") != FORMAT:
        raise UsageError(f"expected the state of a dataset ({FORMAT}), got {sorted(state)[:5]}; pass what state_dict() returned")
    differing = [name for name, value in identity.items() if state.get(name) != value]
    if differing:
        shown = ", ".join(f"{name} {state.get(name)} in place of {identity[name]}" for name in differing)
        raise UsageError(f"expected the state of this dataset and order, got one with {shown}; open the same dataset, with its seed")
    try:
        place = Place(*(operator.index(state[name]) for name in Place._fields))
        world = World(state["rank"], state["world_size"], state["batch_size"], state["last_batch"])
        bad = {str(reason): whole("a count of bad samples", count, 0) for reason, count in state["bad"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        shown = f"{type(fault).__name__}: {fault}"
        raise UsageError(f"expected a whole state, got one with this fault: {shown}; pass what state_dict() returned") from None
    left = identity["num_positions"] - place.start
    if not 0 <= min(place) <= max(place) < 2**63 or left < 0 or place.num_samples > (world.num_steps(left) + 1) * world.batch_size:
        raise UsageError(f"expected a place in the epoch, got {place}; pass what state_dict() returned")
    return place, world, bad


def loader_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """What ``_dataset_state`` finds. Raises UsageError where ``state`` is none of anything."""
    try:
        return _dataset_state(state)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as fault:
        shown = f"{type(fault).__name__}: {fault}"
        raise UsageError(f"expected a state, got one with this fault: {shown}; pass what state_dict() returned") from None


def _dataset_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The dataset's state inside that of torchdata's ``StatefulDataLoader``, as of the batches its loop has had; others as they are.

    Raises UsageError where its batches are not the dataset's.
    Source: torchdata 0.11, stateful_dataloader.py, ``state_dict`` of its two iterators.
    """
    if "_snapshot" in state:
        snapshot = state["_snapshot"]
        workers = [one["dataset_state"] or {} for one in snapshot["_worker_snapshots"].values()]
        if any(one.get("format") != FORMAT for one in workers):
            return workers[0]
        num_batches, batch_size = int(snapshot["_snapshot_step"]), int(workers[0]["batch_size"])
        num_samples = sum(int(one["num_samples"]) for one in workers)
        if abs(num_samples - num_batches * batch_size) >= batch_size:
            raise UsageError(
                f"expected a StatefulDataLoader with the dataset's batch_size of {batch_size}, "
                f"got the state of one that made {num_batches:,} batches of {num_samples:,} samples; give both the same"
            )
        num_samples += int(state["_steps_since_snapshot"]) * batch_size
        bad = sum((Counter(one["bad"]) for one in workers), Counter[str]())
        return {**workers[0], "num_samples": num_samples, "worker": 0, "num_workers": 1, "bad": dict(bad)}
    if isinstance(state.get("dataset_state"), dict):
        return dict(state["dataset_state"])
    return dict(state)


def refuse_other_worlds(place: Place, was: World, world: World, num_workers: int) -> None:
    """Raises UsageError for one worker's place in another world, where it says nothing."""
    is_alike = was.world_size == world.world_size and was.batch_size == world.batch_size and was.last_batch == world.last_batch
    if not is_alike or place.num_workers != num_workers:
        raise UsageError(
            "expected the StatefulDataLoader's state of as many ranks and workers as there are now, with the same batches, "
            f"got that of {was.world_size} ranks of {place.num_workers} workers; give it to load_state_dict of the dataset instead"
        )


def position_of(place: Place, world: World, num_positions: int) -> int:
    """The first position of the epoch that no rank has read, where all have read as many batches as this one.

    Raises UsageError for one worker's place among several, and for a place inside a batch.
    """
    if place.num_workers != 1:
        raise UsageError(
            f"expected the place of a whole rank, got that of worker {place.worker} of {place.num_workers}; "
            "pass the state of the StatefulDataLoader, or state_at(num_batches)"
        )
    most = world.num_samples(num_positions - place.start)
    num_batches, rest = divmod(place.num_samples, world.batch_size)
    if place.num_samples >= most:
        # The last batch may be a short one, or none on this rank.
        return world.position_after(place.start, num_positions, num_batches + (rest > 0))
    if rest and world.world_size > 1:
        raise UsageError(
            f"expected a place between two batches of {world.batch_size}, got one {rest} samples into a batch; "
            "take the state when a batch is complete"
        )
    return world.position_after(place.start, num_positions, num_batches) + rest
