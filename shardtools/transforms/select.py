"""``--where``: samples that an expression over the fields of their records does not take are left out, and counted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardtools import plugins
from shardtools.sample import Batch, Field, Reject
from shardtools.selection import KEY_NAME
from shardtools.transforms import PartitionWork
from shardtools.transforms._where_parse import parse_where
from shardtools.transforms._where_tests import MisfitError, Test

COUNTED_AS = "where"
_REMEDY = "correct the record, or ask for the kind of value first"


@dataclass(frozen=True)
class Select:
    """A sample whose field cannot be compared as asked for, text with a number by order for example, is bad."""

    where: str
    """The expression in the one way to write it, as ``of`` makes it: how a user typed it does not count."""

    @classmethod
    def of(cls, typed: str) -> "Select":
        """Raises UsageError with the place of the first word that does not belong there."""
        return cls(parse_where(typed).text)

    @property
    def extras(self) -> tuple[str, ...]:
        return tuple(sorted(parse_where(self.where).names))

    def recipe(self) -> dict[str, Any]:
        return plugins.options(self)

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        return given

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        names = self.extras
        test = parse_where(self.where).test(names)
        for batch in batches:
            kept = list(_kept(batch, names, test, work))
            if len(kept) == len(batch):
                yield batch
            elif kept:
                yield batch.take(kept)


def _kept(batch: Batch, names: tuple[str, ...], test: Test, work: PartitionWork) -> Iterator[int]:
    """The indices of the samples that are taken."""
    for i, row in enumerate(zip(*(_column(batch, name) for name in names), strict=True)):
        try:
            if test(row):
                yield i
            else:
                work.counts[COUNTED_AS] += 1
        except MisfitError as misfit:
            work.reject(Reject("wrong-type", batch.where(i), f"{misfit}; {_REMEDY}"))


def _column(batch: Batch, name: str) -> list[Any]:
    values = batch.extras[name]
    if name != KEY_NAME:
        return values
    return [key.decode() if value is None else value for key, value in zip(batch.keys, values, strict=True)]
