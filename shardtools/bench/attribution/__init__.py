"""What limits a loader: told by taking one cost after the other away and measuring what that gains, and checked against counters.

``attribute(base, run, context)`` is one side at one setting. With a consumer, level 1 first asks whether the loader is the limit at all;
level 2 takes away storage, decode, transform, collate and transfer in trials that drain, each beside a baseline of its own.
"""

from shardtools.bench.attribution._attribute import attribute
from shardtools.bench.attribution._capped import capped
from shardtools.bench.attribution._rule import MIN_RATIO
from shardtools.bench.attribution._sure import ablation_json, may_be_sure
from shardtools.bench.attribution.context import Context, Run
from shardtools.bench.attribution.result import FACTS, LATE, Ablation, Attribution, Confidence, Fact, Gain, VerdictClass

__all__ = [
    "FACTS",
    "LATE",
    "MIN_RATIO",
    "Ablation",
    "Attribution",
    "Confidence",
    "Context",
    "Fact",
    "Gain",
    "Run",
    "VerdictClass",
    "ablation_json",
    "attribute",
    "capped",
    "may_be_sure",
]
