"""What flows from a source to a shard: samples, a block at a time, column by column."""

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

HEAD_BYTES = 64
"""How much of a bad sample is kept in the rejects file."""
MAX_NESTING = 200
"""How many objects and lists of a JSON value may lie in each other: what every JSON reader takes, at any depth of its own stack."""
_BRIEF_CHARS = 60


class _Brief(reprlib.Repr):
    """Looks at a bounded part of a value only, before it is turned into text."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxdict, self.maxlong = 4, 8, 4, 400

    def repr_str(self, value: str, level: int) -> str:
        return repr(value[:_BRIEF_CHARS])

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value[:_BRIEF_CHARS])


_BRIEF = _Brief()


def brief(value: Any) -> str:
    """A value for messages, in at most 60 characters, whatever its size."""
    text = _BRIEF.repr(value)
    is_cut = len(text) > _BRIEF_CHARS
    return text[: _BRIEF_CHARS - 3] + "..." if is_cut else text


def is_too_deep(value: Any) -> bool:
    """Whether objects and lists lie in each other more than MAX_NESTING deep. Uses no recursion, so any depth can be asked about."""
    level = [value]
    for _ in range(MAX_NESTING):
        containers = [outer for outer in level if type(outer) in (dict, list)]
        if not containers:
            return False
        level = [inner for outer in containers for inner in (outer.values() if type(outer) is dict else outer)]
    return any(type(inner) in (dict, list) for inner in level)


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


def ignore_reject(reject: Reject) -> None:
    """The sink of one who looks at samples that are read, and set aside, elsewhere."""


class Utf8Texts(list[bytes]):
    """Texts as bytes that their source has proved to be UTF-8: nobody needs to look at them again."""


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
    num_blank: int = 0
    """Blank lines passed over on the way to these samples, or behind the last ones where there are none."""
    extras: dict[str, list[Any]] = field(default_factory=dict)
    """Values that were asked for beside the fields and are not stored, by name, column by column; None where a sample has none."""
    root: int | None = None
    """Index of the input that all of the samples are of; None where the source does not tell."""

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, kept: Sequence[int]) -> "Batch":
        """The samples at the indices ``kept``, in that order."""
        where = self.where
        return Batch(
            [self.keys[i] for i in kept],
            {name: [values[i] for i in kept] for name, values in self.columns.items()},
            lambda i: where(kept[i]),
            extras={name: [values[i] for i in kept] for name, values in self.extras.items()},
            root=self.root,
        )
