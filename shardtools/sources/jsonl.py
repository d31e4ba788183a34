"""JSON lines: plain, gzip or zstd, one object a line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import ClassVar

from shardtools.errors import UsageError
from shardtools.extents import extent, identity, version
from shardtools.partitions import partition_bytes, tapered
from shardtools.sample import Batch, Field, Reject, RejectSink
from shardtools.sources import PATH_FIELD, Survey, SurveyRequest
from shardtools.sources._json_records import BadLine, parse
from shardtools.sources._line_files import LINE_SUFFIXES, FirstRecords, first_records, key_prefix, line_files, refuse_same_prefixes
from shardtools.sources._lines import BOM, JSON_SPACE, Place, Places, line_blocks
from shardtools.sources._record_layout import RECORD_FIELD, FieldMapping, RecordLayout, parse_mappings
from shardtools.sources._settle import settle_layout
from shardtools.sources._streams import DamagedStreamError, Window
from shardtools.sources._table_survey import PartitionInput, Sampled, partitions, sampled, with_keys
from shardtools.sources._text_files import TextFile, text_files
from shardtools.sources._wanted_field import wanted_mapping
from shardtools.sources._windows import LineFile, Piece, cut_by_bytes, cut_by_records
from shardtools.units import listed, parse_bytes, printable

__all__ = ["BOM", "JSON_SPACE", "LINE_SUFFIXES", "Jsonl", "TextFile", "text_files"]


@dataclass(frozen=True)
class Jsonl:
    """Samples are records, in the order of files and lines. WDS takes each record whole unless ``map`` makes members of it."""

    key: str | None = None
    """The record field that is the key. None: ``{path without suffix}/{byte offset, 12 digits}``."""
    map: tuple[FieldMapping, ...] | None = None
    """None: every record field under its own name."""
    keep_path: bool = False
    """Adds the field ``path``: the key before it was escaped."""
    max_line_bytes: int = 1 << 29
    layout: RecordLayout | None = None
    """Settled by planning."""

    file_suffixes: ClassVar[tuple[str, ...]] = LINE_SUFFIXES

    option_names: ClassVar[tuple[str, ...]] = ("key", "map", "keep_path", "max_line_bytes")

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Jsonl":
        return cls(
            key=words.get("key"),
            map=parse_mappings(words["map"]) if "map" in words else None,
            keep_path="keep_path" in words,
            max_line_bytes=parse_bytes(words["max_line_bytes"]) if "max_line_bytes" in words else cls.max_line_bytes,
        )

    def survey(self, request: SurveyRequest) -> Survey:
        roots = [given.root for given in request.inputs]
        listed = line_files(request.inputs)
        files = listed.files
        if self.key is None:
            refuse_same_prefixes(files, roots)
        first = first_records(files, roots, self.max_line_bytes)
        layout, fields, notes = self._settled(first, request)
        encoder = request.format.encoder(fields, request.limit.num_bytes)
        names = sorted({name for _, records in first.found for record in records.values for name in record}) if request.extras else []
        shown = sampled(_batches(first, layout, request.extras), names, request, lambda batch: encoder.encode(batch, lambda _: None).costs)
        survey = Survey(
            source=replace(self, layout=layout),
            fields=fields,
            partitions=list(partitions(self._cut(files, roots, shown, request), shown.stored_ratio, request.limit)),
            preview=[],
            notes=notes,
            skipped=listed.skipped,
            newest_ns=listed.newest_ns,
            expected_bytes=int(shown.stored_ratio * sum(file.text_bytes for file in files)),
        )
        return with_keys(survey, shown.keys)

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()) -> Iterator[Batch]:
        for packed in extents:
            _, root, path, begin, end, file_bytes = identity(packed).split(b"\0")
            window = Window(path, int(begin), int(end), int(file_bytes), version(packed))
            for batch in self._read_window(roots[int(root)], window, reject, extras):
                batch.root = int(root)
                yield batch
                del batch

    def _settled(self, first: FirstRecords, request: SurveyRequest) -> tuple[RecordLayout, tuple[Field, ...], list[str]]:
        records = [record for _, found in first.found for record in found.values]
        if not records:
            bad = "blank lines" if first.first_bad is None else f"blank or bad lines, first this one: {first.first_bad}"
            raise UsageError(f"expected at least one record, got only {bad}")
        if request.settled is not None and self.layout is not None:
            return self.layout, request.settled, []
        if self.key is not None and not any(self.key in record for record in records):
            known = sorted({name for record in records for name in record})
            raise UsageError(f"expected a record field in --key, among {listed(known)}, got {printable(self.key)!r}; name one of these")
        mappings, encodings = self.map, request.encodings
        if request.wanted is not None:
            if self.map is not None or self.keep_path:
                raise UsageError("expected neither --map nor --keep-path with --tokenizer, which packs one field, got one; use --text-key")
            mappings, encodings = (wanted_mapping(request.wanted, records),), {request.wanted.field.name: request.wanted.field.encoding}
        whole = request.format.index_name is None and mappings is None
        fields: tuple[Field, ...]
        draft = RecordLayout(self.key, (), None, whole, self.keep_path, exact=(self.key,) if self.key else ())
        if whole:
            if request.encodings:
                raise UsageError("expected --columns with MDS only, got it with WDS, which stores records as they are; leave it out")
            layout, fields, notes = draft, (Field(RECORD_FIELD, "json"),), list[str]()
        else:
            layout, fields, notes = settle_layout(draft, mappings, records, encodings, request.format, request.replaced)
            notes = notes if request.wanted is None else []
        if self.keep_path:
            if any(field.name == PATH_FIELD for field in fields):
                raise UsageError(f"expected no record field {PATH_FIELD!r} beside --keep-path, got one; rename it with --map")
            fields = (*fields, Field(PATH_FIELD, "str"))
        return layout, tuple(sorted(fields, key=lambda field: field.name)), notes

    def _cut(self, files: Sequence[LineFile], roots: Sequence[str], shown: Sampled, request: SurveyRequest) -> Iterator[PartitionInput]:
        text_bytes = sum(file.text_bytes for file in files)
        target = partition_bytes(text_bytes, shown.stored_ratio, request.limit.num_bytes, shown.beside_ratio)
        sizes = tapered(text_bytes, target) if request.is_slow else repeat(target)
        cuts: Iterator[tuple[list[Piece], int | None]] = ((pieces, None) for pieces in cut_by_bytes(files, sizes))
        if request.limit.num_samples is not None:
            cuts = iter(cut_by_records(roots, files, request.limit.num_samples, target, self.max_line_bytes))
        for pieces, num_records in cuts:
            yield PartitionInput([_extent(piece) for piece in pieces], sum(piece.text_bytes for piece in pieces), num_records)

    def _read_window(self, root: str, window: Window, reject: RejectSink, extras: Sequence[str]) -> Iterator[Batch]:
        assert self.layout is not None, "a recipe holds a surveyed source"
        places, prefix = Places(root, window), key_prefix(window.path)
        try:
            for block in line_blocks(root, window, self.max_line_bytes):
                place = places.of(block)
                bad = _BadLines(place, reject)
                num_lines = len(block.lines)
                # A line may be large: what is done with is let go before the next thing is made of it.
                records = parse(block, self.max_line_bytes, bad)
                num_blank = num_lines - bad.num_lines - len(records.values)
                batch = self.layout.batch(records, prefix, place, reject, extras)
                del block, records
                batch.num_blank = num_blank
                if batch.keys or num_blank:
                    yield batch
                del batch
        except DamagedStreamError as fault:
            reject(Reject(fault.reason, places.at(fault.offset), fault.sentence))


def _batches(first: FirstRecords, layout: RecordLayout, extras: Sequence[str]) -> Iterator[tuple[Batch, int]]:
    """The first records, which are used up, and how much text each batch of them is."""
    while first.found:
        file, records = first.found.pop(0)
        batch = layout.batch(records, key_prefix(file.path), lambda _: "", lambda _: None, extras)
        batch.root = file.root
        text_bytes = sum(len(line) + 1 for line in records.lines)
        del records
        yield batch, text_bytes
        del batch


@dataclass
class _BadLines:
    """Passes bad lines on, and counts them."""

    place: Place
    reject: RejectSink
    num_lines: int = 0

    def __call__(self, bad: BadLine) -> None:
        self.num_lines += 1
        self.reject(Reject(bad.reason, self.place(bad.offset), bad.sentence, bad.head))


def _extent(piece: Piece) -> bytes:
    window = piece.window
    numbers = [b"%d" % number for number in (window.begin, window.end, window.file_bytes)]
    return extent([window.path + b"@" + numbers[0], b"%d" % piece.file.root, window.path, *numbers], piece.file.version)
