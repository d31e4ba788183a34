"""Samples into other samples, between a source and a shard: one partition at a time, each on its own."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

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


class Transform(Protocol):
    """A frozen, picklable dataclass whose fields are the transform's options, every automatic choice settled."""

    def recipe(self) -> dict[str, Any]:
        """What of it determines the output, as plain data: no path, no host, no date. Content that lies in files is there by its digest."""

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        """The schema that comes out where ``given`` goes in. Raises UsageError where it cannot be applied."""

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        """The samples of one partition, in an order that depends on the partition and the recipe alone, however the batches are cut."""
