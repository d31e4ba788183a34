"""The columns of MDS shards as a source: which there are, which is the key, and where tar members hold them."""

from collections.abc import Mapping, Sequence
from typing import Any

from shardtools.datasets import Dataset
from shardtools.errors import UsageError
from shardtools.places import join
from shardtools.sample import Field
from shardtools.sources import Wanted
from shardtools.sources import _shard_values as convert
from shardtools.sources._shard_fields import RECORD_MEMBER, ColumnMember, ShardField
from shardtools.sources._shard_inputs import ShardInputs
from shardtools.sources._shard_schema import as_members, came_of_members, common_schema
from shardtools.sources._shard_survey import First
from shardtools.sources._shard_view import split_path
from shardtools.units import listed, printable


def columns_of(inputs: ShardInputs) -> tuple[Field, ...]:
    """Every column but the key. Raises UsageError where two shards differ in them."""
    first = inputs.shards[0]
    for source in inputs.shards:
        ours, theirs = first.shard.entry, source.shard.entry
        if ours is not None and theirs is not None and ours.columns != theirs.columns:
            name = next(name for name in sorted({*ours.columns, *theirs.columns}) if ours.columns.get(name) != theirs.columns.get(name))
            places = [join(inputs.datasets[one.root].uri, one.shard.name) for one in (first, source)]
            raise UsageError(
                f"expected the same columns in every shard, got {name!r} as {ours.columns.get(name, 'none')} in {places[0]} and as "
                f"{theirs.columns.get(name, 'none')} in {places[1]}; pack them one by one"
            )
    columns = [_columns(dataset) for dataset in inputs.datasets]
    if any(found != columns[0] for found in columns):
        raise UsageError(f"expected the same columns in every input, got others in {inputs.datasets[-1].uri}; pack them one by one")
    return columns[0]


def _columns(dataset: Dataset) -> tuple[Field, ...]:
    name = _key_column(dataset)
    entry = next((shard.entry for shard in dataset.shards if shard.entry is not None), None)
    optional = {field.name for field in dataset.fields if field.optional}
    found = {field.name: field.encoding for field in dataset.fields} if entry is None else entry.columns
    return tuple(Field(column, found[column], column in optional) for column in sorted(found) if column != name)


def key_column(inputs: ShardInputs) -> str | None:
    """The column that holds the keys, None where none does. Raises UsageError where inputs differ in it."""
    names = [_key_column(dataset) for dataset in inputs.datasets]
    if any(name != names[0] for name in names):
        raise UsageError(f"expected the same key column in every input, got {names[0]!r} and others; pack them one by one")
    return names[0]


def _key_column(dataset: Dataset) -> str | None:
    return next((shard.format.key_name for shard in dataset.shards if not shard.is_keyless), None)


def refuse_pickles(columns: Sequence[Field], allowed: bool, place: str) -> None:
    """Raises UsageError for a column of pickles that the user did not allow."""
    name = next((column.name for column in columns if column.encoding == "pkl"), None)
    if name is not None and not allowed:
        raise UsageError(
            f"expected columns without pickles, got {name!r} of pkl in {place}, which may run code where it is read; if you trust who made "
            "it, --allow-pickle passes the bytes on, unopened"
        )


def refuse_unknown(encodings: Mapping[str, str], inputs: ShardInputs) -> None:
    """Raises UsageError for a column of an encoding that only another program knows."""
    from shardtools.formats.mds import is_known_encoding

    name = next((name for name, encoding in encodings.items() if not is_known_encoding(encoding)), None)
    if name is not None:
        raise UsageError(
            f"expected columns of encodings that MDSWriter knows, got {name!r} of {encodings[name]!r} in {inputs.datasets[0].uri}; "
            f"--columns {name}=bytes passes its bytes on, --map takes other columns alone"
        )


def schema_for(columns: Sequence[Field], inputs: ShardInputs) -> tuple[ColumnMember, ...]:
    """The columns, and which tar members they are, or were before."""
    known = common_schema(inputs)
    if known is not None and [(one.name, one.encoding) for one in sorted(known, key=lambda one: one.name)] == [
        (column.name, column.encoding) for column in columns
    ]:
        return tuple(sorted(known, key=lambda one: one.name))
    if came_of_members(inputs):
        return tuple(ColumnMember(column.name, column.encoding, column.optional, (column.name,)) for column in columns)
    return as_members(columns)


def column_at(name: str, columns: Sequence[Field], first: First, flag: str) -> tuple[str, str | None]:
    """The column, and the path in its JSON, of a dotted name. Raises UsageError where no first sample has it."""
    encodings = {column.name: column.encoding for column in columns}
    if name in encodings:
        return name, None
    texts = {column: _texts(column, first) for column, encoding in encodings.items() if encoding == "json"}
    for origin, path in [*split_path(name), (RECORD_MEMBER, name)]:
        if path is not None and any(value is not None for value in convert.inner(texts.get(origin, []), path)):
            return origin, path
    inside = [f"{origin}.{key}" for origin, values in texts.items() for key in convert.keys_of(values)]
    raise UsageError(
        f"expected a column or a field of its JSON in {flag}, among {listed([*sorted(encodings), *inside])}, got {printable(name)!r}"
    )


def key_at(name: str, columns: Sequence[Field], first: First) -> tuple[str, str | None]:
    """What ``column_at`` gives of the columns that keys can be made of."""
    return column_at(name, [column for column in columns if convert.is_in_record(column.encoding)], first, "--key")


def wanted_column(wanted: Wanted, columns: Sequence[Field], first: First) -> ShardField:
    """The one column that becomes tokens. Raises UsageError where there is none, or where its values are no text."""
    name = wanted.field.name if wanted.path is None else wanted.path
    origin, path = column_at(name, columns, first, "--text-key")
    encoding = next(column.encoding for column in columns if column.name == origin)
    form = "json" if path is not None or wanted.field.encoding == "json" else "stored"
    if form == "stored" and encoding not in ("str", "bytes"):
        raise UsageError(f"expected a column of text to tokenize, got {origin!r} of {encoding}; choose with --text-key")
    return ShardField(wanted.field.name, (origin,), form, encoding, path, optional=True)


def _texts(column: str, first: First) -> list[Any]:
    """The first values of a JSON column, parsed; None where one cannot be."""
    return [convert.parsed(text) for _, block in first.blocks for text in block.column(column)]
