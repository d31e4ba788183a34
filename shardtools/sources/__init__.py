"""Inputs: what samples are read from, planned from metadata first, then read extent by extent."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from shardtools.formats import ShardFormat
from shardtools.plan import Partition, ShardLimit
from shardtools.sample import Batch, Field, RejectSink
from shardtools.sources._inputs import Input, resolve_inputs
from shardtools.sources._scan import first_files
from shardtools.units import plural, printable

__all__ = [
    "PATH_FIELD",
    "PREVIEW_KEYS",
    "Foreseen",
    "Input",
    "Source",
    "Spread",
    "Survey",
    "SurveyRequest",
    "Wanted",
    "escape_note",
    "first_files",
    "resolve_inputs",
    "spread_here",
]


PATH_FIELD = "path"
"""What ``--keep-path`` adds to every sample: its key before it was escaped."""
PREVIEW_KEYS = 5
"""How many keys planning shows."""
Spread = Callable[[Callable[[Any, Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a picklable function with each item and a callback for events; yields the results in any order."""


def spread_here(function: Callable[[Any, Any], Any], items: Sequence[Any]) -> Iterable[Any]:
    """One item after the other in this process."""
    return [function(item, lambda _: None) for item in items]


@dataclass(frozen=True)
class Wanted:
    """The one field that is packed, where others are to be left out."""

    field: Field
    """What records call it, and what it must be."""
    path: str | None = None
    """As the user named it: a record field, dots lead into objects; or the extension of files. None: the field's own name, or
    the only kind of file."""


class Foreseen(NamedTuple):
    """What steps will make of the first samples, as far as it says how much will be stored."""

    kept_share: float = 1.0
    """Of the samples, above 0."""
    more_bytes: int = 0
    """What is read beside those that are kept, and stored with them."""


@dataclass(frozen=True)
class SurveyRequest:
    """What a source must know to plan."""

    inputs: Sequence[Input]
    format: ShardFormat
    limit: ShardLimit
    shuffle_seed: int | None = None
    spread: Spread = spread_here
    """How work on many items is done; planning may use whatever will run the partitions."""
    encodings: dict[str, str] = field(default_factory=dict)
    """MDS encodings the user gave by field name, in place of the inferred ones."""
    wanted: Wanted | None = None
    """None: all fields."""
    stored_ratio: float | None = None
    """Stored bytes per input byte, where what is stored is not what is read; None: as the first records show."""
    is_slow: bool = False
    """What becomes of a part takes seconds a MiB, so that parts had better end at about the same time."""
    extras: tuple[str, ...] = ()
    """What is asked for beside the fields, by the names of records; dots lead into objects. Refused where no first record has it."""
    foresee: Callable[[Sequence[Batch]], "Foreseen"] = lambda _: Foreseen()
    """Told the first samples with their extras, without their fields: what steps will make of them."""
    replaced: frozenset[str] = frozenset()
    """Fields of records whose place others take that steps make: no fields of the source's."""
    settled: tuple[Field, ...] | None = None
    """The fields of a recipe whose input is looked at again: with them the source's own layout stays as it is."""


@dataclass
class Survey:
    """What planning found out."""

    source: Any
    """The source with every automatic choice settled: part of the recipe."""
    fields: tuple[Field, ...]
    partitions: list[Partition]
    preview: list[str]
    """The keys of the first samples."""
    notes: list[str] = field(default_factory=list)
    """Choices made and warnings, each a sentence for people."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Inputs left out by policy, counted by reason."""
    expected_bytes: int = 0
    """Stored bytes of the whole dataset: exact for files, estimated otherwise."""
    num_twins: int = 0
    """Keys that differ from another only by case or Unicode form, where planning knows all keys."""
    newest_ns: int = 0
    """The latest modification time of any input, in nanoseconds since 1970."""
    fixes_shards: bool = False
    """Each partition's ``num_shards`` is what it will have, unless a sample is rejected."""
    is_shuffled: bool = False
    """Samples are in the order that the shuffle seed gives. False: without a seed, or where only reading tells one from another."""


class Source(Protocol):
    """A frozen dataclass whose fields are the source's options; ``plugins.make`` says how words become them."""

    file_suffixes: ClassVar[tuple[str, ...]]
    """Lower-case endings of the files that are this source's without being asked; none: whatever no other source claims."""

    def survey(self, request: SurveyRequest) -> Survey:
        """Plan from metadata and at most the first 1,000 records."""

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()) -> Iterator[Batch]:
        """The samples of the extents, in order. ``roots`` are the inputs' folders on this machine.

        ``extras`` are the names under which ``Batch.extras`` holds more than the fields: Python values as JSON has them.
        """


def escape_note(num_escaped: int, escaped: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """A note that counts keys which differ from the name they were made of, and shows three."""
    if not num_escaped:
        return []
    shown = ", ".join(f"{printable(raw)!r} is {key.decode()}" for raw, key in escaped[:3])
    return [f"{plural(num_escaped, 'key')} escaped, since not every reader takes the name as it is: {shown}"]
