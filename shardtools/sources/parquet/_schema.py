"""The columns that all files of a table have in common."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyarrow.types import is_null

from shardtools.errors import UsageError
from shardtools.sources._planned import shown
from shardtools.sources._table_layout import TableLayout
from shardtools.sources.parquet._files import Footer
from shardtools.sources.parquet._folders import FolderColumn
from shardtools.sources.parquet._types import plain_type
from shardtools.units import printable


@dataclass(frozen=True)
class TableSchema:
    """Names and types; those of folders come last, as pyarrow has them."""

    types: dict[str, Any]
    """Of the columns in the files."""
    folders: tuple[FolderColumn, ...]

    @property
    def names(self) -> list[str]:
        return [*self.types, *(folder.name for folder in self.folders)]

    def needed(self, layout: TableLayout, extras: Sequence[str]) -> list[str]:
        """The columns in the files that are read for a layout, in the order of the files."""
        wanted = [column.column for column in layout.columns] + ([layout.key] if layout.key else []) + list(extras)
        return needed_columns(wanted, self.types)


def needed_columns(paths: Sequence[str], names: Collection[str]) -> list[str]:
    """Those of the columns that the paths are, or lead into by dots."""
    tops = {column_of(path, names) for path in paths}
    return [name for name in names if name in tops]


def column_of(path: str, names: Collection[str]) -> str:
    """The column that a path is or leads into: a column may have dots in its own name."""
    return path if path in names else path.partition(".")[0]


def table_schema(
    footers: Sequence[Footer], folders: tuple[FolderColumn, ...], roots: Sequence[str], paths: Sequence[str] | None
) -> TableSchema:
    """The schema of the files. ``paths`` are all that is asked for; None: every column.

    Raises UsageError for files that differ in a column that is read, naming two of them.
    """
    spelled = {folder.name for folder in folders}
    # What has no rows changes no type, and a column of nothing but nulls may be of any.
    first, *others = [footer for footer in footers if footer.metadata.num_rows] or footers[:1]
    types = _types(first, paths)
    origin = dict.fromkeys(types, first)
    for footer in others:
        found = _types(footer, paths)
        for name in sorted({*types, *found}):
            here, there = types.get(name), found.get(name)
            if here is None or there is None or (here != there and not is_null(here) and not is_null(there)):
                raise UsageError(_difference(name, (_named(origin.get(name, first), roots), here), (_named(footer, roots), there)))
            if is_null(here) and not is_null(there):
                types[name], origin[name] = there, footer
    both = sorted(spelled & set(types))
    if both:
        raise UsageError(
            f"expected a column either in the files or spelled by their folders, got {printable(both[0])!r} in both of "
            f"{_named(first, roots)}; rename the folder, or pack it alone"
        )
    return TableSchema(types, folders)


def _types(footer: Footer, paths: Sequence[str] | None) -> dict[str, Any]:
    types = {field.name: plain_type(field.type) for field in footer.schema}
    return types if paths is None else {name: types[name] for name in needed_columns(paths, types)}


def _named(footer: Footer, roots: Sequence[str]) -> str:
    return f"{roots[footer.file.root]}/{shown(footer.file.path)}"


def _difference(name: str, first: tuple[str, Any], other: tuple[str, Any]) -> str:
    (here, kind), (there, other_kind) = ((place, "no such column" if kind is None else kind) for place, kind in (first, other))
    return (
        f"expected the same columns in every file, got {printable(name)!r} as {kind} in {here} and {other_kind} in {there}; "
        "convert one of them, or name the columns to take with --map"
    )
