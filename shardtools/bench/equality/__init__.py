"""Whether sides deliver the same samples: proved by reading each as it is read in a trial, or the comparison is refused."""

from shardtools.bench.equality.functions import try_functions
from shardtools.bench.equality.proof import Proof, prove
from shardtools.bench.equality.refusal import refuse_unequal

__all__ = ["Proof", "prove", "refuse_unequal", "try_functions"]
