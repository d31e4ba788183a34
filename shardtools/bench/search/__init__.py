"""The search for the settings of a ``DataLoader``: the fewest workers that give 95 % of the best rate, and what goes with them.

Pure but for ``matrix``, which runs the trials: it is given a function that tries a setting. There is no successive halving: every trial
is of full length, since short ones are biased by the queue that was filled before they began, most for settings that take most memory.
"""

from shardtools.bench.search.cell import Cell, Outcome, Space
from shardtools.bench.search.find import TIME_BUDGET, Found, Goal, find
from shardtools.bench.search.paired import Duel, Saving
from shardtools.bench.search.record import Record, TimeIsUpError

__all__ = ["TIME_BUDGET", "Cell", "Duel", "Found", "Goal", "Outcome", "Record", "Saving", "Space", "TimeIsUpError", "find"]
