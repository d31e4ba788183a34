"""Stops a look at shards in this process where a file that is cut meanwhile would end it, and workers for next to nothing."""

import pytest

from shardtools.build.workers import fitting_engine
from shardtools.engines import num_cores
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial

MIB = 1 << 20
CASES = {
    "no shard": (None, [], Serial()),
    "little to read": (None, [MIB] * 9, Serial()),
    "much to read": (None, [32 * MIB] * 8, Processes(min(num_cores(), 8))),
    "much to read, one worker asked for": (1, [32 * MIB] * 9, Serial()),
    "little to read, workers asked for": (3, [MIB] * 9, Processes(3)),
    "fewer shards than workers": (3, [MIB] * 2, Processes(2)),
    "one shard, held": (None, [256 * MIB], Serial()),
    "one shard, mapped": (None, [256 * MIB + 1], Processes(1)),
    "shards to map, one worker asked for": (1, [MIB, 257 * MIB], Processes(1)),
}


@pytest.mark.parametrize("case", CASES)
def test_engine(case):
    workers, shard_bytes, expected = CASES[case]
    assert fitting_engine(workers, shard_bytes) == expected
