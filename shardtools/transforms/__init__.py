"""Samples into other samples, between a source and a shard: one partition at a time, each on its own."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from shardtools.sample import Batch, Field, RejectSink


@dataclass
class PartitionWork:
    """What a transform is told of the partition it works on, and what it leaves beside samples."""

    index: int
    """Of the partition in the plan: with the seed, all that randomness may depend on."""
    reject: RejectSink
    """Takes a bad sample; ``Reject.where`` as ``Batch.where`` gives it."""
    counts: Counter[str] = field(default_factory=Counter)
    """What the ledger of the dataset adds up over all partitions, by names of the transform's own."""
    roots: Sequence[str] = ()
    """The inputs' folders, for ``Batch.root``."""


class Step(Protocol):
    """A frozen, picklable dataclass that changes, rejects or leaves out samples one by one; those that stay keep order and key."""

    @property
    def extras(self) -> tuple[str, ...]:
        """What the source has to give beside the fields."""

    def recipe(self) -> dict[str, Any]:
        """What of it determines the output, as ``Transform.recipe``."""

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        """The schema that comes out where ``given`` goes in. Raises UsageError where it cannot be applied."""

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        """The samples in their order. What is left out on purpose is counted in ``work.counts``, by why."""


@runtime_checkable
class FillingStep(Step, Protocol):
    """A step that makes fields of what records point at, which no plan knows; what was left open, the first records settle."""

    @property
    def replaced(self) -> frozenset[str]:
        """Fields of the records whose place its own take."""

    @property
    def media_root(self) -> str | None:
        """The folder it reads; None: the inputs' own."""

    @property
    def note(self) -> str:
        """What was settled, for people."""

    def settled(self, first: Sequence[Batch], roots: Sequence[str]) -> tuple["FillingStep", int]:
        """The step with every automatic choice settled by the first samples, and how many bytes it reads beside these.

        Raises UsageError where they leave one open.
        """

    def given(self, made: tuple[Field, ...]) -> tuple[Field, ...]:
        """What ``fields`` made these of, but for what is replaced."""


@runtime_checkable
class ShrinkingStep(Step, Protocol):
    """A step that may store far less than is read."""

    @property
    def shrinks(self) -> bool:
        """Whether it does."""


FirstSamples = Callable[[], Generator[Batch]]
"""Reads the first samples, as they come to a step."""


@runtime_checkable
class LookingStep(Step, Protocol):
    """A step that goes by what the first values of fields look like."""

    @property
    def note(self) -> str:
        """What was settled, for people."""

    def after_look(self, given: tuple[Field, ...], first: FirstSamples) -> "LookingStep":
        """The step with every choice settled that values decide; ``given`` is the schema that goes in."""


class Transform(Protocol):
    """A frozen, picklable dataclass whose fields are the transform's options, every automatic choice settled."""

    def recipe(self) -> dict[str, Any]:
        """What of it determines the output, as plain data: no path, no host, no date. Content that lies in files is there by its digest."""

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        """The schema that comes out where ``given`` goes in. Raises UsageError where it cannot be applied."""

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        """The samples of one partition, in an order that depends on the partition and the recipe alone, however the batches are cut."""
