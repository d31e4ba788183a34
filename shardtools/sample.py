"""What flows from a source to a shard: samples, a block at a time, column by column."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

HEAD_BYTES = 64
"""How much of a bad sample is kept in the rejects file."""


@dataclass(frozen=True)
class Field:
    """One named part of every sample, with its type in MDS's words (``jpeg``, ``str``, ``int``, ``json`` ...)."""

    name: str
    encoding: str
    optional: bool = False
    """A sample may lack it: its value is then None."""


class Reject(NamedTuple):
    """A sample that was left out, and why."""

    reason: str
    """A short word to count by, such as ``invalid-json``."""
    where: str
    """The file, and the line and byte offset where there are any."""
    sentence: str
    """Expected, got, and what to do; the whole message is ``{where}: {sentence}``."""
    head: bytes = b""
    """The first bytes of what was rejected."""


class RejectSink(Protocol):
    """Takes a bad sample; raises BadSampleError when the budget is used up."""

    def __call__(self, reject: Reject, /) -> None: ...


@dataclass(slots=True)
class Batch:
    """Samples in order, held by column.

    ``keys[i]`` is a legal key in ASCII; ``columns[name][i]`` is that sample's value, None where it lacks the
    field. Values are bytes (stored unchanged) or the Python value of the field's encoding.
    """

    keys: list[bytes]
    columns: dict[str, list[Any]]
    where: Callable[[int], str]
    """Names the place sample ``i`` came from, for messages."""

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, kept: Sequence[int]) -> "Batch":
        """The samples at the indices ``kept``, in that order."""
        where = self.where
        return Batch(
            [self.keys[i] for i in kept],
            {name: [values[i] for i in kept] for name, values in self.columns.items()},
            lambda i: where(kept[i]),
        )
