"""Parquet: one file, folders of them, and folders that spell columns. Source: parquet.apache.org/docs/file-format."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardtools.sample import Batch, RejectSink
from shardtools.sources import Survey, SurveyRequest
from shardtools.sources._record_layout import FieldMapping
from shardtools.sources._table_layout import TableLayout, TableOptions
from shardtools.sources.parquet._folders import SUFFIXES, FolderColumn


@dataclass(frozen=True)
class Parquet:
    """Samples are rows, in the order of files and rows.

    MDS takes columns by their types. WDS makes members of columns of bytes, files and arrays, and one object, ``json``, of all
    others, unless ``map`` makes members of columns.
    """

    key: str | None = None
    """The column that is the key. None: ``{path without suffix}/{row, 12 digits}``."""
    map: tuple[FieldMapping, ...] | None = None
    """None: every column under its own name."""
    keep_path: bool = False
    """Adds the field ``path``: the key before it was escaped."""
    layout: TableLayout | None = None
    """Settled by planning."""
    folders: tuple[FolderColumn, ...] = ()
    """Columns that the names of folders spell; settled by planning."""

    file_suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    option_names: ClassVar[tuple[str, ...]] = TableOptions.names

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Parquet":
        options = TableOptions.of(words)
        return cls(options.key, options.map, options.keep_path)

    def survey(self, request: SurveyRequest) -> Survey:
        # Only here, and where rows are read: loading Arrow takes longer than planning many an input of another kind.
        from shardtools.sources.parquet._plan import survey_files

        options = TableOptions(self.key, self.map, self.keep_path)
        survey, layout, folders = survey_files(options, self.layout, request)
        survey.source = replace(self, layout=layout, folders=folders)
        return survey

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()) -> Iterator[Batch]:
        from shardtools.sources.parquet._rows import read_pieces

        assert self.layout is not None, "a recipe holds a surveyed source"
        return read_pieces(self.layout, self.folders, roots, extents, reject, extras)
