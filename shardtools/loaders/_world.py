"""Who reads which positions of an epoch: global batches are runs of positions, whatever the world."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from shardtools.errors import UsageError
from shardtools.loaders._order import Positions
from shardtools.loaders._whole import whole

_MAX = 2**31 - 1
LastBatch = Literal["short", "pad", "drop"]


@dataclass(frozen=True)
class World:
    """One rank among ``world_size``, each of which reads batches of ``batch_size`` samples.

    Global batch g is positions ``[g * B * W, (g + 1) * B * W)``, counted from where the epoch was gone on with; rank r reads
    the r-th run of B of it. Where the last one is not whole (``rest`` samples are left): ``short`` shares them out, the first
    ``rest % W`` ranks get one more than the others, and a rank that gets none has a batch less; ``pad`` fills up with the first
    samples of the epoch; ``drop`` leaves them out.
    """

    rank: int
    world_size: int
    batch_size: int
    last_batch: LastBatch

    def __post_init__(self) -> None:
        whole("a world size", self.world_size, 1, _MAX)
        whole("a rank", self.rank, 0, self.world_size - 1)
        whole("a batch size", self.batch_size, 1, _MAX)
        if self.last_batch not in ("short", "pad", "drop"):
            raise UsageError(f"expected last_batch as short, pad or drop, got {self.last_batch!r}")

    @property
    def global_batch_size(self) -> int:
        """Samples of all ranks at one step."""
        return self.batch_size * self.world_size

    def num_samples(self, left: int) -> int:
        """How many samples this rank reads where ``left`` are."""
        whole, rest = divmod(left, self.global_batch_size)
        return whole * self.batch_size + len(self._last(rest))

    def num_batches(self, left: int) -> int:
        """How many batches this rank makes of them."""
        return -(-self.num_samples(left) // self.batch_size)

    def num_steps(self, left: int) -> int:
        """Batches of the first rank, which has the most."""
        return replace(self, rank=0).num_batches(left)

    def positions(self, start: int, num_positions: int, batches: Positions) -> Positions:
        """The positions of this rank's batches, one behind the other, from ``start`` on in an epoch of ``num_positions``."""
        whole, rest = divmod(num_positions - start, self.global_batch_size)
        full = batches[batches < whole]
        first = start + full * self.global_batch_size + self.rank * self.batch_size
        found: Positions = (first[:, None] + np.arange(self.batch_size)).reshape(-1)
        if len(full) == len(batches):
            return found
        last = self._last(rest)
        tail = start + whole * self.global_batch_size + np.arange(last.start, last.stop)
        return np.concatenate((found, tail % num_positions))  # behind the end are the first of the epoch

    def touched(self, begins: Positions, ends: Positions, turn: int, num_turns: int) -> "npt.NDArray[np.bool_]":
        """Which runs ``[begin, end)`` of positions hold some of every ``num_turns``-th of this rank's batches, from number ``turn`` on.

        Counted from where the epoch was gone on with; the last, uneven batch is not looked at.
        """
        period = self.global_batch_size * num_turns
        behind = (begins - turn * self.global_batch_size - self.rank * self.batch_size) % period
        found: npt.NDArray[np.bool_] = (behind < self.batch_size) | (period - behind < ends - begins)
        return found & (begins < ends)

    def position_after(self, start: int, num_positions: int, num_batches: int) -> int:
        """Where an epoch stands once every rank has read so many batches."""
        whole = (num_positions - start) // self.global_batch_size
        return start + num_batches * self.global_batch_size if num_batches <= whole else num_positions

    def _last(self, rest: int) -> range:
        """This rank's part of the last, uneven global batch, counted from where it begins."""
        if rest == 0 or self.last_batch == "drop":
            return range(0)
        if self.last_batch == "pad":
            return range(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        share, more = divmod(rest, self.world_size)
        begin = self.rank * share + min(self.rank, more)
        return range(begin, begin + share + (self.rank < more))
