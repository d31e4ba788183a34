"""The IterableDataset: positions of the epoch, found in shards, decoded, counted."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from shardtools.errors import BadSampleError, DamagedShardError, UsageError
from shardtools.loaders._catalog import Catalog
from shardtools.loaders._map import MapDataset
from shardtools.loaders._memory import keep_freed_memory
from shardtools.loaders._options import LoaderOptions
from shardtools.loaders._order import Order
from shardtools.loaders._shared import Shared
from shardtools.loaders._state import Place, as_state, loader_state, parse_state, position_of, refuse_other_worlds
from shardtools.loaders._substitutes import MOST_TRIES, others
from shardtools.loaders._whole import whole
from shardtools.loaders._world import World
from shardtools.loaders.decoders import Decode

_LOG = logging.getLogger("shardtools.loaders")
_CHUNK_SAMPLES = 512


class ShardedDataset(IterableDataset[Any]):
    """Samples of one rank, each with ``__key__`` and its fields, split over the workers of a ``DataLoader`` batch by batch.

    The DataLoader's ``batch_size`` must be the one the dataset was opened with. The order is a function of (seed, epoch); the
    place in it is set by ``set_epoch`` and ``load_state_dict``, which reach workers that live on, too. One pass takes up the
    place that was loaded; the pass after it starts at the beginning.
    """

    def __init__(self, catalog: Catalog, world: World, seed: int | None, decode: Decode | None, options: LoaderOptions) -> None:
        self._catalog = catalog
        self._world = world
        self._seed = seed
        self._decode = decode
        self._options = options
        self._shared = Shared()
        self._order: Order | None = None
        self._place: Place | None = None
        """Where the pass this process is in was begun."""
        self._num_given = 0
        """Samples of its reader's stream that are had by now."""
        self._loaded: tuple[Place, dict[str, int]] | None = None
        """Of this worker alone, from a StatefulDataLoader: its place, and what it found bad before."""

    @property
    def epoch(self) -> int:
        return self._shared.epoch

    @property
    def bad(self) -> dict[str, int]:
        """Bad samples of this epoch by reason, of all workers of this rank."""
        return dict(self._shared.bad)

    def set_epoch(self, epoch: int) -> None:
        """What the next pass reads.

        The present epoch is gone on with where ``load_state_dict`` left it; another starts at its beginning.
        """
        epoch = whole("an epoch", epoch, 0)
        if epoch != self._shared.epoch:
            self._place = None
            self._shared.set(epoch, 0, 0)
            self._shared.set_bad({})

    def __len__(self) -> int:
        """How many samples this rank reads in a whole epoch. A pass from a place that was loaded gives only the rest of it."""
        return self._world.num_samples(self._num_positions)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        index, num_workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None:
            keep_freed_memory()
        epoch, start, skip, is_again = self._shared.begin()
        if is_again and self._seed is not None and index == 0:
            _LOG.warning("epoch %d is read again, in the same order; set_epoch before each pass shuffles anew", epoch)
        if skip and num_workers > 1:
            raise UsageError("expected a place between two batches for several workers, got one inside a batch; use num_workers=0")
        self._place = Place(epoch, start, skip, index, num_workers)
        if self._loaded is not None:
            (self._place, bad), self._loaded = self._loaded, None
            self._shared.set_own_bad(bad)
        self._num_given = self._place.num_samples
        return self._fetched(self._place) if self._catalog.is_remote else self._samples(self._place)

    def state_dict(self) -> dict[str, Any]:
        """Where this process stands: for ``StatefulDataLoader``, or where the dataset is iterated without workers.

        Raises UsageError where workers read: they read ahead, and only ``state_at`` or the StatefulDataLoader knows what was had.
        """
        if get_worker_info() is None and self._shared.is_by_workers:
            raise UsageError(
                "expected state_dict() of a dataset that this process reads itself, got one that workers read ahead of it; "
                "pass the number of batches that were had to state_at(num_batches), or take the state of a StatefulDataLoader"
            )
        if self._place is not None:
            return self._state(self._place._replace(num_samples=self._num_given))
        return self._state(Place(self._shared.epoch, self._shared.start, self._shared.skip))

    def state_at(self, num_batches: int) -> dict[str, Any]:
        """Where the epoch stands once this pass gave ``num_batches`` batches: for a plain ``DataLoader``, which reads ahead.

        Counted from where the pass started, that is from the place that was loaded. Save that of rank 0: of an uneven end it always
        has a part. Bad samples that workers met ahead of these batches are in it, and are met and counted again.
        """
        left = self._num_positions - self._shared.start
        num_batches = whole("a number of batches", num_batches, 0, self._world.num_steps(left))
        return self._state(Place(self._shared.epoch, self._shared.start, self._shared.skip + num_batches * self._world.batch_size))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there: a state of this dataset or of a ``StatefulDataLoader`` around it, from any world and number of workers.

        Raises UsageError for the state of another dataset, seed or order.
        """
        place, world, bad = parse_state(loader_state(state), self._identity)
        self._place, worker = None, get_worker_info()
        if worker is not None:
            refuse_other_worlds(place, world, self._world, worker.num_workers)
            self._loaded, self._shared.epoch = (place, bad), place.epoch
            return
        is_inside = place.num_samples % world.batch_size and place.num_samples < world.num_samples(self._num_positions - place.start)
        if is_inside and world == self._world and place.num_workers == 1:
            num_batches, inside = divmod(place.num_samples, world.batch_size)
            self._shared.set(place.epoch, world.position_after(place.start, self._num_positions, num_batches), inside)
        else:
            self._shared.set(place.epoch, position_of(place, world, self._num_positions), 0)
        self._shared.set_bad(bad)

    def __repr__(self) -> str:
        world = self._world
        shuffled = "in order" if self._seed is None else f"shuffled by seed {self._seed}"
        return (
            f"<ShardedDataset of {self._num_positions:,} samples in {len(self._catalog.counts):,} shards, {shuffled}, epoch {self.epoch}, "
            f"rank {world.rank} of {world.world_size}, batches of {world.batch_size}>"
        )

    def as_map(self) -> MapDataset:
        """The same samples, decoded alike, by index or key."""
        return MapDataset(self._catalog, self._decode)

    @property
    def _identity(self) -> dict[str, Any]:
        """What a state must be of, or its positions are others."""
        return {
            "dataset": self._catalog.digest,
            "num_positions": self._num_positions,
            "seed": self._seed,
            "block_shards": self._block_shards,
        }

    @property
    def _num_positions(self) -> int:
        """Of an epoch."""
        return int(self._catalog.counts.sum())

    @property
    def _block_shards(self) -> int | None:
        """None where nothing is shuffled."""
        return None if self._seed is None else self._options.block_shards

    def _state(self, place: Place) -> dict[str, Any]:
        return as_state(place, self._world, self._identity, self._shared.bad if get_worker_info() is None else self._shared.own_bad)

    def _order_of(self, epoch: int) -> Order:
        if self._order is None or self._order.epoch != epoch:
            self._order = Order(self._catalog.counts, self._block_shards, self._seed or 0, epoch)
        return self._order

    def _fetched(self, place: Place) -> Iterator[Any]:
        """The same, of shards that are fetched before their turn."""
        world = self._world
        batch = place.num_samples // world.batch_size * place.num_workers + place.worker
        position = min(place.start + batch * world.global_batch_size, self._num_positions - 1)
        blocks, begins, ends = self._order_of(place.epoch).blocks_from(position)
        is_read = world.touched(begins - place.start, ends - place.start, place.worker, place.num_workers).tolist()
        with self._catalog.read_ahead([block for block, is_ours in zip(blocks, is_read, strict=True) if is_ours]):
            yield from self._samples(place)

    def _samples(self, place: Place) -> Iterator[Any]:
        """This reader's batches, every ``num_workers``-th of its rank's, a sample at a time.

        A bad one's place is taken by another: all ranks stay in step.
        """
        world, num_positions, order = self._world, self._num_positions, self._order_of(place.epoch)
        first, inside = divmod(place.num_samples, world.batch_size)
        total = world.num_batches(num_positions - place.start)
        batches = range(place.worker + first * place.num_workers, total, place.num_workers)
        at_once = max(1, _CHUNK_SAMPLES // world.batch_size)
        opened, decode = self._catalog.reader, self._decode
        last, read = -1, None
        for i in range(0, len(batches), at_once):
            positions = world.positions(place.start, num_positions, np.array(batches[i : i + at_once], np.int64))
            places = np.stack(order.locate(positions), axis=1).tolist()
            for shard, row in places[inside:]:
                try:
                    if shard != last or read is None:
                        last, read = shard, opened(shard)
                    sample = read(row)
                except DamagedShardError as error:
                    sample = self._instead("damaged", shard, row, error)
                else:
                    if decode is not None:
                        try:
                            sample = decode(sample)
                        except Exception as error:
                            sample = self._instead("undecodable", shard, row, error)
                self._num_given += 1
                yield sample
            inside = 0
        self._report_bad(place)

    def _report_bad(self, place: Place) -> None:
        """At the end of a pass: what this process found in it."""
        found = self._shared.own_bad
        if found:
            reader = f"worker {place.worker} of {place.num_workers}" if get_worker_info() else "this process"
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in found.items())
            _LOG.warning("epoch %d is read out: %s set aside bad samples, %s", place.epoch, reader, reasons)

    def _instead(self, reason: str, shard: int, row: int, error: Exception) -> Any:
        """A sound sample in place of a bad one: the same for any world and batch size, another for each bad one."""
        self._set_aside(reason, shard, row, error)
        for other, at in others(self._catalog.counts, shard, row):
            with suppress(DamagedShardError):
                sample = self._catalog.reader(other)(at)
                if self._decode is None:
                    return sample
                with suppress(Exception):
                    return self._decode(sample)
        raise BadSampleError(
            f"expected a sound sample to take the place of sample {row:,} of {self._catalog.name(shard)}, "
            f"got none in {MOST_TRIES:,} tries; verify the dataset"
        )

    def _set_aside(self, reason: str, shard: int, row: int, error: Exception) -> None:
        """Counts a bad sample. Raises BadSampleError where that is one too many."""
        where = f"sample {row:,} of {self._catalog.name(shard)}"
        sentence = f"expected a sound sample, got one that is {reason}: {where}: {type(error).__name__}: {error}"
        num_bad, budget = self._shared.count_bad(reason), self._options.max_bad
        if not budget.allows(num_bad, self._num_positions):
            tolerate = "restore the shard" if reason == "damaged" else "mend the decoder or the sample"
            raise BadSampleError(f"{sentence}; {tolerate}, or tolerate some with max_bad") from error
        _LOG.warning("%s; set aside, another sample takes its place in the batch", sentence)
