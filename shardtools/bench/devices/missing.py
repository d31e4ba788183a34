"""The fault of a device that is not there."""

from shardtools.errors import ShardtoolsError


class NoCudaError(ShardtoolsError):
    """A CUDA device was asked for and there is none."""
