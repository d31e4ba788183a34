"""One trial: a fresh process that opens one side, reads it for a while, and says what it saw; watched, and cleaned up after."""

from shardtools.bench.trial.overhead import Overhead, instrumentation_overhead
from shardtools.bench.trial.result import TrialResult
from shardtools.bench.trial.supervise import run_trial

__all__ = ["Overhead", "TrialResult", "instrumentation_overhead", "run_trial"]
