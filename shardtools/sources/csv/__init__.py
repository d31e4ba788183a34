"""CSV and TSV: plain, gzip or zstd, with a header. Source: rfc-editor.org/rfc/rfc4180."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardtools.sample import Batch, Field, RejectSink
from shardtools.sources import Survey, SurveyRequest
from shardtools.sources._record_layout import FieldMapping
from shardtools.sources._table_layout import TableLayout, TableOptions
from shardtools.sources.csv._text import SUFFIXES


@dataclass(frozen=True)
class Csv:
    """Samples are rows, in the order of files and rows; types follow from the first 1,000 of them."""

    key: str | None = None
    """The column that is the key. None: ``{path without suffix}/{row, 12 digits}``."""
    map: tuple[FieldMapping, ...] | None = None
    """None: every column under its own name. Where ``?`` marks one as optional, an empty cell is none."""
    keep_path: bool = False
    """Adds the field ``path``: the key before it was escaped."""
    layout: TableLayout | None = None
    """Settled by planning."""
    types: tuple[Field, ...] = ()
    """Every column, with the type of its first cells; settled by planning."""

    file_suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    option_names: ClassVar[tuple[str, ...]] = TableOptions.names

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Csv":
        options = TableOptions.of(words)
        return cls(options.key, options.map, options.keep_path)

    def survey(self, request: SurveyRequest) -> Survey:
        # Only here, and where rows are read: loading Arrow takes longer than planning many an input of another kind.
        from shardtools.sources.csv._plan import survey_files

        options = TableOptions(self.key, self.map, self.keep_path)
        survey, layout, types = survey_files(options, self.layout, self.types, request)
        survey.source = replace(self, layout=layout, types=types)
        return survey

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()) -> Iterator[Batch]:
        from shardtools.sources.csv._rows import Stretch, StretchReader

        assert self.layout is not None, "a recipe holds a surveyed source"
        reader = StretchReader(self.layout, self.types, tuple(roots), reject, tuple(extras))
        for packed in extents:
            yield from reader.batches(Stretch.unpacked(packed))
