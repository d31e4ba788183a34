"""Randomised complete blocks: which side runs when, and after how many blocks it is enough.

A block is one trial of every side. All of one side and then all of the other would measure the hour of the day: runs so ordered have
shown +43 % for a change that is -14 % when interleaved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardtools.bench.statistics import MAX_BLOCKS, Comparison
from shardtools.units import plural

FEWEST_BLOCKS = 6
"""The sign-flip test of five pairs cannot go below 0.0625."""
MOST_BLOCKS = 12
WIDE = 0.05
"""An interval with a larger half-width asks for more blocks."""


@dataclass(frozen=True)
class BlockPlan:
    """How many blocks, in which orders."""

    seed: int
    """0 or more."""
    min_blocks: int = FEWEST_BLOCKS
    max_blocks: int = MOST_BLOCKS
    """Equal to ``min_blocks`` where the number is fixed. Six are enough on a quiet host. One trial that something else slowed to half
    makes the interval of six useless, and only more blocks mend that."""
    seconds: float = 90.0
    """Blocks beyond ``min_blocks`` run where they are expected to end within: noise shall not make a run three times as long."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_blocks <= self.max_blocks <= MAX_BLOCKS:
            raise ValueError(f"expected 1 to {MAX_BLOCKS} blocks, got {self.min_blocks} to {self.max_blocks}")

    @classmethod
    def fixed(cls, num_blocks: int, seed: int) -> "BlockPlan":
        return cls(seed, num_blocks, num_blocks)

    def order(self, block: int, num_sides: int) -> tuple[int, ...]:
        """The sides in the order they run in a block: a function of seed and block alone.

        An odd block runs in the opposite order of the one before. So over two blocks every side runs as often before each other one
        as after it, and an advantage of running first cancels, which six free draws would leave to chance.
        """
        random = np.random.Generator(np.random.Philox(key=np.array([self.seed, block // 2], np.uint64)))
        drawn = tuple(int(side) for side in np.argsort(random.random(num_sides)))
        return drawn[::-1] if block % 2 else drawn

    def wants_more(self, num_run: int, comparisons: Sequence[Comparison], seconds: float = 0.0) -> bool:
        """Whether another block is to run after ``num_run``, which took ``seconds``; ``comparisons`` is what they came to, empty where
        nothing can be compared."""
        if num_run < self.min_blocks:
            return True
        has_time = seconds / num_run * (num_run + 1) <= self.seconds
        return num_run < self.max_blocks and has_time and any(compared.half_width > WIDE for compared in comparisons)

    def rule(self, num_sides: int = 2) -> str:
        """The stop rule in words, printed beside the result. One side has nothing to be paired with, nor an interval that extends it."""
        if num_sides == 1:
            return f"{plural(self.min_blocks, 'trial')}, number fixed"
        if self.min_blocks == self.max_blocks:
            return f"{plural(self.min_blocks, 'paired block')}, number fixed, order randomised"
        extended = f"extended while an interval is wider than +-5 % and it takes no more than {self.seconds:.0f} s"
        return f"{self.min_blocks} to {self.max_blocks} paired blocks, {extended}, order randomised"
