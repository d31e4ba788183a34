"""Two datasets as fields that compare: members of tars as the columns they were made of, where the other side has those.

Where columns became members of tars, bytes, images and arrays are a member each, and all others are in the member ``json``. Which
they were, the manifest says, of foreign tars the columns of the other side, by the same rule.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from shardtools.datasets import Dataset
from shardtools.errors import UsageError
from shardtools.sample import Field
from shardtools.sources import PATH_FIELD
from shardtools.sources.mds import members_of_columns
from shardtools.sources.wds import ColumnMember
from shardtools.verify.against._fields import RECORD_FIELD, Rule, Schema, aliases_of, rule_of, schema_of

_SHOWN_NAMES = 6


@dataclass(frozen=True)
class View:
    """The fields of one side as they are compared."""

    schema: Schema
    renames: Mapping[str, str] = field(default_factory=dict)
    """What some of its stored fields are called there."""
    columns: tuple[ColumnMember, ...] | None = None
    """Of which members were made, where the other side has those; None: what is stored is compared."""

    @property
    def has_records(self) -> bool:
        """The member ``json`` is a record, whose members are fields."""
        return self.columns is not None and any(not column.members for column in self.columns)

    @property
    def left_out(self) -> frozenset[str]:
        """The members of its records that are paths, where the other side has the files."""
        return frozenset() if self.columns is None else self.schema.media_paths

    @cached_property
    def replaced(self) -> frozenset[str]:
        """The members of its records that are not compared, since columns are there in their place."""
        made = (column.name for column in self.columns or () if column.members)
        return self.schema.media_paths.union(made)

    @cached_property
    def encodings(self) -> dict[str, str]:
        """By name as compared, as far as it is known."""
        stored = {
            self.renames.get(name, name): encoding
            for name, encoding in self.schema.encodings.items()
            if not self.has_records or name != RECORD_FIELD
        }
        return stored | {column.name: column.encoding for column in self.columns or ()}

    def encoding(self, name: str) -> str | None:
        known = self.encodings.get(name)
        return self.schema.encoding(name) if known is None and self.columns is None else known


@dataclass(frozen=True)
class Mapped:
    """How the samples of one side become fields that compare with those of the other."""

    own: View
    other: View

    @property
    def has_records(self) -> bool:
        return self.own.has_records

    @property
    def drops_absent(self) -> bool:
        """MDS has every column in every row, so it cannot tell what is empty from what is absent; nor can JSON made of its rows."""
        is_made = self.own.columns is not None or self.other.columns is not None
        return is_made or self.own.schema.format_name != self.other.schema.format_name

    def name(self, own_name: str) -> str:
        return self.own.renames.get(own_name, own_name)

    def rule(self, own_name: str) -> Rule | None:
        """None where the stored bytes are compared as they are."""
        name = self.name(own_name)
        ours, theirs = self.own.encoding(name), self.other.encoding(name)
        if not self.drops_absent and (ours == theirs or ours is None or theirs is None):
            return None
        return rule_of(ours, theirs)

    def member_rule(self, name: str) -> Rule | None:
        """For a member of a record; None for one that the other side cannot have: a path, where it has the file, and a key column."""
        if name in self.own.replaced:
            return None
        if name == self.other.schema.key_name and self.other.encodings.get(name) is None:
            return None
        ours, theirs = self.own.encoding(name), self.other.encoding(name)
        return Rule("json") if ours is None and theirs is None else rule_of(ours, theirs)


def mapped(ours: Dataset, theirs: Dataset) -> tuple[Mapped, Mapped]:
    """Both sides, each as seen from the other. Raises UsageError where one has as one record what the other has in pieces."""
    schemas, aliases = (schema_of(ours), schema_of(theirs)), (aliases_of(ours), aliases_of(theirs))
    a = _view(schemas[0], schemas[1], aliases[0] | aliases[1])
    b = _view(schemas[1], schemas[0], aliases[1] | aliases[0])
    _refuse_unlike((ours, a), (theirs, b))
    return Mapped(a, b), Mapped(b, a)


def _view(own: Schema, other: Schema, aliases: Mapping[str, str]) -> View:
    renames = {
        name: aliases[name]
        for name in own.encodings
        if name in aliases and aliases[name] in other.encodings and name not in other.encodings
    }
    columns = _columns(own, other, renames)
    made = {member: column.name for column in columns or () for member in column.members}
    return View(own, renames | made, columns)


def _columns(own: Schema, other: Schema, renames: Mapping[str, str]) -> tuple[ColumnMember, ...] | None:
    """The columns that the stored fields are made of; None where both sides have fields that compare as they are."""
    if own.columns is None:
        is_alike = other.columns is None and {renames.get(name, name) for name in own.encodings} <= {*other.encodings, PATH_FIELD}
        columns = None if is_alike else _columns_by_rule(own, other)
    else:
        has_columns = other.format_name == "mds" or other.columns is not None or _columns_by_rule(other, own) is not None
        columns = own.columns if has_columns and own.columns != other.columns else None
    if columns is None:
        return None
    media = [
        ColumnMember(name, "bytes", True, tuple(member for member, column in own.media.items() if column == name))
        for name in dict.fromkeys(own.media.values())
    ]
    replaced = {*own.media_paths, *own.media.values()}
    return (*(column for column in columns if column.name not in replaced), *media)


def _columns_by_rule(own: Schema, other: Schema) -> tuple[ColumnMember, ...] | None:
    """Those of the other side, if the fields of this one are the members that they become."""
    known = other.columns or ()
    if not known and other.format_name == "mds":
        known = tuple(ColumnMember(name, encoding) for name, encoding in other.encodings.items())
    fields = [Field(column.name, column.encoding, column.optional) for column in known if column.name not in own.media.values()]
    stored = {*own.encodings} - {*own.media, PATH_FIELD}
    for columns in (other.columns or (), members_of_columns(fields)):
        if columns and stored <= {member for column in columns for member in column.members or (RECORD_FIELD,)}:
            return tuple(columns)
    return None


def _refuse_unlike(ours: tuple[Dataset, View], theirs: tuple[Dataset, View]) -> None:
    """Raises UsageError where every sample would differ: one side has a record, the other what became of its members."""
    for (dataset, view), (other, seen) in ((ours, theirs), (theirs, ours)):
        names, others = {*view.encodings}, {*seen.encodings}
        if RECORD_FIELD in names - others and others - names and not view.has_records:
            raise UsageError(
                f"expected two datasets with the same fields, got {_listed(names)} in {dataset.uri} and {_listed(others)} in "
                f"{other.uri}; compare each of the two with the source it was packed from"
            )


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:_SHOWN_NAMES]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else "")
