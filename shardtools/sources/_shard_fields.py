"""What planning settles about fields made of shards: part of the recipe."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shardtools.sample import Field
from shardtools.sources import PATH_FIELD
from shardtools.sources._grouping import FieldRule

RECORD_MEMBER = "json"
"""The tar member that holds all columns that are no members of their own."""


@dataclass(frozen=True)
class ColumnMember:
    """A column, and where its values are in tar members that are made of columns."""

    name: str
    encoding: str
    optional: bool = False
    members: tuple[str, ...] = ()
    """The member it is, of several the one that a sample has. None: it is part of the JSON member."""


@dataclass(frozen=True)
class ShardField:
    """One field of the dataset, and how it is made."""

    name: str
    origins: tuple[str, ...]
    """Members or columns; of several the one that a sample has."""
    form: str = "stored"
    """``stored``: the bytes unchanged; ``column``: as an MDS column of the encoding takes it; ``npy``: an array as a file, ``array``: the
    reverse; ``json``: what JSON calls the value, or what ``path`` leads to in it, ``dumped``: the text of that; ``record``: one JSON
    object of the origins."""
    encoding: str = "bytes"
    """Of the stored values."""
    path: str | None = None
    optional: bool = False
    empty: str | None = None
    """How absent values are stored where every sample has some: ``""`` or ``null``. None: what is there is a value."""


@dataclass(frozen=True)
class ShardLayout:
    """Everything about fields that planning settled; part of the recipe."""

    parts: tuple[ShardField, ...]
    rules: tuple[FieldRule, ...] = ()
    """Members that count as one field: a sample has one of each, unless it is optional."""
    known: tuple[str, ...] | None = None
    """The members there may be; None: others are left out, since the user named the fields."""
    key: tuple[str, str | None] | None = None
    """Member or column, and the path in its JSON, that is the key. None: the key that the sample has."""
    keep_path: bool = False
    schema: tuple[ColumnMember, ...] | None = None
    """The columns of which the members are made, so that they can be restored. None: members are what there is."""
    is_table: bool = False
    """What is read has columns with encodings, and no members with extensions."""

    @cached_property
    def encodings(self) -> dict[str, str]:
        """Of the columns that are read."""
        return {column.name: column.encoding for column in self.schema or ()}


def fields_of(parts: Sequence[ShardField], encodings: dict[str, str], keep_path: bool) -> tuple[Field, ...]:
    """The dataset's fields, sorted, for parts whose encodings are given."""
    fields = [Field(part.name, encodings[part.name], part.optional) for part in parts]
    return tuple(sorted([*fields, *([Field(PATH_FIELD, "str")] if keep_path else [])], key=lambda field: field.name))
