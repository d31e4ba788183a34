"""One schema for shards that come from several datasets, or the reason why there is none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardtools.build.existing.examine import Examined
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats import MEMBER_ENCODINGS, ShardFormat, split_names
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sample import Field

_IMAGES = frozenset(["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm"])


@dataclass(frozen=True)
class Schema:
    """How the samples of a dataset are read."""

    format: ShardFormat
    fields: tuple[Field, ...]
    """Without the key column."""


@dataclass(frozen=True)
class Group:
    """The shards of one dataset, with what its manifest says of its fields."""

    examined: Sequence[Examined]
    fields: tuple[Field, ...] = ()
    """Empty where there is no manifest."""

    @property
    def place(self) -> str:
        return self.examined[0].candidate.uri


def one_schema(groups: Sequence[Group]) -> Schema:
    """The schema of all the groups together. Raises ShardtoolsError, naming two places, where they cannot be one dataset."""
    first = groups[0]
    is_mds = _is_mds(first)
    for group in groups:
        if _is_mds(group) != is_mds:
            raise UsageError(f"expected datasets of one format, got MDS and WDS: {first.place} and {group.place}; merge each kind apart")
    return _mds_schema(groups) if is_mds else Schema(Wds(), _wds_fields(groups))


def _is_mds(group: Group) -> bool:
    return isinstance(group.examined[0].candidate.shard.format, Mds)


def _mds_schema(groups: Sequence[Group]) -> Schema:
    first = groups[0].examined[0]
    columns, key_column = _columns(first), _key_column(first)
    for group in groups:
        for examined in group.examined:
            if _columns(examined) != columns:
                difference = _difference(columns, _columns(examined))
                raise ShardtoolsError(
                    f"expected the same columns in every shard, got {difference}: {first.candidate.place} and {examined.candidate.place}; "
                    "pack one of them again with --columns"
                )
            if _key_column(examined) != key_column:
                raise ShardtoolsError(
                    f"expected one key column, got {key_column} in {first.candidate.place} and {_key_column(examined)} in "
                    f"{examined.candidate.place}; pack one of them again with --key-column"
                )
    optional = {field.name for group in groups for field in group.fields if field.optional}
    fields = tuple(Field(name, encoding, name in optional) for name, encoding in columns.items() if name != key_column)
    return Schema(Mds(key_column=key_column), fields)


def _columns(examined: Examined) -> dict[str, str]:
    config = examined.facts.details["config"]
    return dict(zip(config["column_names"], config["column_encodings"], strict=True))


def _key_column(examined: Examined) -> str | None:
    return examined.candidate.shard.format.key_name


def _difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            return f"{name!r} as {one.get(name, 'no column at all')} and as {other.get(name, 'no column at all')}"
    return "them in another order"


def _wds_fields(groups: Sequence[Group]) -> tuple[Field, ...]:
    known: dict[str, tuple[Field, str]] = {}
    names = [_names(group) for group in groups]
    for group, own in zip(groups, names, strict=True):
        if not _kinds(own) & _kinds(names[0]):
            shown = f"{', '.join(sorted(names[0]))} in {groups[0].place} and {', '.join(sorted(own))} in {group.place}"
            raise ShardtoolsError(f"expected samples with at least one field in common, got {shown}; merge what belongs together")
        for field in group.fields:
            other, place = known.setdefault(field.name, (field, group.place))
            if other.encoding != field.encoding:
                raise ShardtoolsError(
                    f"expected one encoding for the field {field.name!r}, got {other.encoding} in {place} and {field.encoding} in "
                    f"{group.place}; pack one of them again"
                )
    optional = {field.name for group in groups for field in group.fields if field.optional} | _partly_absent(groups)
    every = sorted({name for own in names for name in own})
    return tuple(Field(name, known[name][0].encoding if name in known else _encoding(name), name in optional) for name in every)


def _names(group: Group) -> set[str]:
    return {name for joined in _field_sets([group]) for name in split_names(joined)}


def _field_sets(groups: Iterable[Group]) -> set[str]:
    return {joined for group in groups for examined in group.examined for joined in examined.field_sets}


def _partly_absent(groups: Sequence[Group]) -> set[str]:
    sets = [set(split_names(joined)) for joined in _field_sets(groups)]
    everywhere = {name for name in sets[0] if all(name in names for names in sets)}
    return {name for names in sets for name in names} - everywhere


def _kinds(names: Iterable[str]) -> set[str]:
    """Names, with all images alike: shards of JPEGs and of PNGs are one dataset to a reader that decodes by extension."""
    return {"an image" if name.rpartition(".")[2].lower() in _IMAGES else name for name in names}


def _encoding(name: str) -> str:
    return MEMBER_ENCODINGS.get(name.rpartition(".")[2].lower(), "bytes")
