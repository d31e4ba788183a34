"""The faults a user can cause, each with the exit code the command line ends with.

Every message is one sentence: what was expected, what came, where, and what to do.
"""


class ShardtoolsError(Exception):
    """The run failed; the message says why and what to do."""

    exit_code = 3


class UsageError(ShardtoolsError):
    """The command or its options cannot be carried out as given."""

    exit_code = 2


class BadSampleError(ShardtoolsError):
    """More samples were bad than the budget allows (the default budget is none)."""


class DuplicateKeyError(ShardtoolsError):
    """Two samples of one dataset have the same key."""


class StorageError(ShardtoolsError):
    """A read or write failed for a reason outside the data: disk full, no permission, gone."""


class DamagedShardError(ShardtoolsError):
    """A shard's bytes break its format.

    ``offset`` is the byte where reading stopped being possible.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.message = message
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.message} (at byte {self.offset})"
