"""Two settings against each other in paired blocks, and what keeping workers saves."""

from dataclasses import dataclass

from shardtools.bench.blocks import FEWEST_BLOCKS, BlockPlan
from shardtools.bench.search.cell import Cell
from shardtools.bench.search.record import Record, TimeIsUpError
from shardtools.bench.statistics import Comparison, compare

PERSISTENT_SHARE = 0.005
"""Of an epoch: workers are kept where that saves more."""
_FEWEST = 3
"""Blocks: of fewer an interval says nothing."""
_MOST_FAILURES = 1


@dataclass(frozen=True)
class Duel:
    """The second cell against the first."""

    first: Cell
    second: Cell
    comparison: Comparison | None
    """None where too few blocks fitted or went well."""
    failure: str = ""
    """Of the second cell, where its trials failed."""


def duel(record: Record, first: Cell, second: Cell, seed: int) -> Duel:
    """Six blocks in random order, or fewer, not below three, where time is short."""
    plan, blocks, failure = BlockPlan.fixed(FEWEST_BLOCKS, seed), [], ""
    num_failed = 0
    for block in range(FEWEST_BLOCKS):
        if num_failed > _MOST_FAILURES or not record.has_time(2):
            break
        rates: list[float | None] = [None, None]
        try:
            for side in plan.order(block, 2):
                outcome = record.run_apart((first, second)[side])
                rates[side] = outcome.rate
                if outcome.status != "ok":
                    num_failed += 1
                    failure = outcome.message if side else failure
        except TimeIsUpError:
            break
        if rates[0] is not None and rates[1] is not None:
            blocks.append((rates[0], rates[1]))
    return Duel(first, second, compare(blocks) if len(blocks) >= _FEWEST else None, failure)


@dataclass(frozen=True)
class Saving:
    """What ``persistent_workers`` saves each epoch."""

    seconds: float | None
    """None: not measured."""
    epoch_share: float | None
    """None where the length of an epoch is not known."""
    reason: str = ""
    """Why something is None."""

    @property
    def is_worth_it(self) -> bool:
        """Above 0.5 % of an epoch. What is not known is taken to be worth it, as the cost of keeping workers is small."""
        return self.epoch_share is None or self.epoch_share > PERSISTENT_SHARE


def saving_of(kept_s: float | None, restarted_s: float | None, epoch_s: float | None) -> Saving:
    """From the starts of a second epoch with workers that were kept and with new ones."""
    if kept_s is None or restarted_s is None:
        return Saving(None, None, "the start of a second epoch was not measured")
    seconds = max(0.0, restarted_s - kept_s)
    if not epoch_s:
        return Saving(seconds, None, "the number of samples of an epoch is not known")
    return Saving(seconds, seconds / epoch_s)
