"""What ``index`` and ``merge`` share: how unsound shards are named."""

from shardtools.build.existing.admit import UnsoundShardsError
from shardtools.cli._output import Answer, say


def refusal(error: UnsoundShardsError) -> Answer:
    """A sentence for each shard."""
    for fault in error.faults:
        say(f"error: {fault}")
    return Answer(code=error.exit_code)
