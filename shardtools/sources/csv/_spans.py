"""CSV files cut into stretches, where that is proved to be safe."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools.sources._data_files import DataFile
from shardtools.sources._lines import WHOLE_FILE
from shardtools.sources._streams import Window
from shardtools.sources._table_cuts import cut_by_bytes, cut_by_rows
from shardtools.sources._table_survey import PartitionInput
from shardtools.sources.csv._marks import RowRun, UnprovenError, begins_of, row_runs
from shardtools.sources.csv._rows import Stretch
from shardtools.sources.csv._text import Header, delimiter_of, text_blocks


@dataclass(frozen=True)
class CsvFile:
    """One input file and its header."""

    file: DataFile
    root: str
    header: Header
    text_bytes: int
    """Length of its text: exact for a plain file, estimated for a compressed one."""

    def window(self, begin: int, end: int = WHOLE_FILE) -> Window:
        return Window(self.file.path, begin, end, self.file.num_bytes, self.file.version)

    def stretch(self, begin: int, end: int, first_row: int) -> Stretch:
        return Stretch(self.file.root, self.window(begin, end), first_row)

    def runs(self) -> list[RowRun]:
        """Its rows in runs of a MiB or so. Raises UnprovenError."""
        blocks = text_blocks(self.root, self.window(self.header.end))
        return row_runs(blocks, self.header.end, delimiter_of(self.file.path))

    def begins_of(self, runs: Sequence[RowRun], rows: Sequence[int]) -> dict[int, int]:
        """Where these rows, in ascending order, begin in the text, or the last one ends. A compressed text is read once for all."""
        found: dict[int, int] = {}
        for run in [RowRun(runs[0].begin, runs[-1].end)] if self.window(0).is_compressed else runs:
            inside = [row for row in rows if run.begin.row <= row <= run.end.row]
            blocks = text_blocks(self.root, self.window(run.begin.offset))
            found |= begins_of(run, inside, blocks, delimiter_of(self.file.path)) if inside else {}
        return found


@dataclass(frozen=True)
class _Span:
    """Rows that are cut as one, or within where they are counted."""

    source: CsvFile
    begin: int
    end: int
    first_row: int
    num_rows: int
    num_bytes: int
    runs: tuple[RowRun, ...] = ()


@dataclass(frozen=True)
class Spans:
    """All files, as far as they can be cut."""

    files: Sequence[CsvFile]
    uncut: list[str]
    """Names of files that would be cut if that were safe; filled while cutting."""

    def by_bytes(self, target: int, sizes: Iterator[int]) -> Iterator[PartitionInput]:
        """Partitions of as many bytes as ``sizes`` say; ``target`` is what a file may have before it is cut."""
        spans = [span for source in self.files for span in self._of_file(source, source.text_bytes > target)]
        for cut in cut_by_bytes(spans, sizes):
            stretches: list[Stretch] = []
            for span, _, _ in cut.parts:
                last = stretches[-1] if stretches else None
                if last is not None and last.window.end == span.begin and last.window.path == span.source.file.path and span.first_row:
                    stretches[-1] = span.source.stretch(last.window.begin, span.end, last.first_row)
                else:
                    stretches.append(span.source.stretch(span.begin, span.end, span.first_row))
            yield PartitionInput([stretch.packed() for stretch in stretches], cut.num_bytes, None)

    def by_rows(self, shard_samples: int, target: int) -> Iterator[PartitionInput]:
        """Partitions of a multiple of ``shard_samples`` rows; a file whose rows cannot be counted is one by itself."""
        counted: list[_Span] = []
        for source in self.files:
            try:
                runs = source.runs()
            except UnprovenError:
                self.uncut.append(self._name(source))
                yield from _cut(counted, shard_samples, target)
                counted = []
                yield PartitionInput([source.stretch(source.header.end, WHOLE_FILE, 0).packed()], source.text_bytes, None)
                continue
            if runs:
                num_bytes = runs[-1].end.offset - runs[0].begin.offset
                counted.append(_Span(source, runs[0].begin.offset, runs[-1].end.offset, 0, runs[-1].end.row, num_bytes, tuple(runs)))
        yield from _cut(counted, shard_samples, target)

    def _of_file(self, source: CsvFile, is_large: bool) -> Iterator[_Span]:
        begin = source.header.end
        if is_large and not source.window(0).is_compressed:
            try:
                for run in source.runs():
                    yield _Span(source, run.begin.offset, run.end.offset, run.begin.row, run.num_rows, run.num_bytes)
                return
            except UnprovenError:
                self.uncut.append(self._name(source))
        if source.text_bytes > begin:
            yield _Span(source, begin, WHOLE_FILE, 0, 0, source.text_bytes - begin)

    def _name(self, source: CsvFile) -> str:
        return f"{source.root}/{source.file.path.decode('utf-8', 'backslashreplace')}"


def _cut(spans: Sequence[_Span], shard_samples: int, target: int) -> Iterator[PartitionInput]:
    cuts = list(cut_by_rows(spans, shard_samples, target))
    rows: defaultdict[_Span, set[int]] = defaultdict(set)
    for cut in cuts:
        for span, begin, end in cut.parts:
            rows[span] |= {begin, end}
    begins = {span: span.source.begins_of(span.runs, sorted(found)) for span, found in rows.items()}
    for cut in cuts:
        extents = [span.source.stretch(begins[span][begin], begins[span][end], begin).packed() for span, begin, end in cut.parts]
        yield PartitionInput(extents, cut.num_bytes, cut.num_rows)
