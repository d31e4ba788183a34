"""The columns that the samples of several datasets were made of, so that a conversion of all of them restores these too."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardtools.build.existing.merge_inputs import MergeInput
from shardtools.sources.mds import member_columns
from shardtools.sources.wds import ColumnMember, kept_columns


@dataclass(frozen=True)
class MergedColumns:
    """What conversions look for where a recipe has the layout of its source."""

    schema: tuple[ColumnMember, ...]


def common_columns(inputs: Sequence[MergeInput]) -> MergedColumns | None:
    """Those that all inputs name alike; None where one names others, or none."""
    found = [kept_columns(one.part.dataset) or member_columns(one.part.dataset) for one in inputs]
    schema = found[0]
    return MergedColumns(schema) if schema is not None and all(other == schema for other in found) else None
