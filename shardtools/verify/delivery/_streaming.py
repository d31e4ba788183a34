"""Which samples StreamingDataset delivers to which rank, by its own arithmetic and without the library.

Source: mosaicml-streaming 0.13, ``base/partition/orig.py`` and ``relaxed.py`` with the defaults of ``StreamingDataset``
(``shuffle_algo`` py1e: as many canonical nodes as physical ones; ``partition_algo`` relaxed). A shuffle permutes the samples
before they are dealt out and changes no count. Workers and batch size decide who reads what, not what is read.

The library repeats samples so that all ranks get equally many: first so that the canonical nodes are equally long, then so
that the ranks of a node are.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


class World(NamedTuple):
    """Who takes part. ``canonical_nodes`` is a multiple or a divisor of ``num_nodes``."""

    num_nodes: int
    ranks_per_node: int
    canonical_nodes: int

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.ranks_per_node


def one_node(world_size: int) -> World:
    return World(1, world_size, 1)


def epoch_length(num_samples: int, world: World) -> int:
    """Samples of an epoch before the ranks are made equal."""
    row = -(-num_samples // world.canonical_nodes)
    ratio = max(world.num_nodes // world.canonical_nodes, 1)
    return world.canonical_nodes * (-(-row // ratio) * ratio)


def num_delivered(num_samples: int, world: World, num_seen: int = 0) -> int:
    """Samples that all ranks together get in the rest of an epoch of which ``num_seen`` were delivered before."""
    num_seen -= num_seen % world.num_nodes
    per_node = max(epoch_length(num_samples, world) - num_seen, 0) // world.num_nodes
    return world.world_size * -(-per_node // world.ranks_per_node)


def delivered(num_samples: int, world: World, num_seen: int = 0) -> Ids:
    """The same samples by number, in the order they are read: [samples per rank, nodes, ranks per node] int64.

    Memory: 8 bytes a sample, a few times over.
    """
    num_seen -= num_seen % world.num_nodes
    order = _epoch(num_samples, world)[num_seen:]
    nodes = order.reshape(-1, world.num_nodes).T
    short = -nodes.shape[1] % world.ranks_per_node
    if short and nodes.shape[1]:
        nodes = np.concatenate([nodes, _filling(nodes, world.ranks_per_node, short)], axis=1)
    return nodes.reshape(world.num_nodes, -1, world.ranks_per_node).transpose(1, 0, 2)


def _epoch(num_samples: int, world: World) -> Ids:
    """The samples of an epoch in the order of their global index, with those that are repeated for canonical nodes."""
    canonical = world.canonical_nodes
    total = epoch_length(num_samples, world)
    row = -(-num_samples // canonical)
    if num_samples < canonical or (num_samples == canonical and canonical < world.num_nodes):
        return np.resize(np.arange(num_samples, dtype=np.int64), total).reshape(canonical, -1).T.ravel()
    bounds = np.arange(canonical + 1) * num_samples // canonical
    rows = bounds[:-1, None] + np.arange(total // canonical, dtype=np.int64)
    rows[:, row - 1] -= np.diff(bounds) < row
    padding = total // canonical - row
    if padding:
        ratio = world.num_nodes // canonical
        begin = rows.shape[1] - 2 * padding - ratio + 1
        rows[:, -padding:] = rows[:, begin : begin + padding]
    return rows.T.ravel()


def _filling(nodes: Ids, ranks_per_node: int, short: int) -> Ids:
    """The samples repeated at the end of each node so that its ranks get equally many: [nodes, short]."""
    length = nodes.shape[1]
    if ranks_per_node + short - 1 <= length:
        begin = length - ranks_per_node - short + 1
        return nodes[:, begin : begin + short]
    return nodes[:, np.arange(short) % length]
