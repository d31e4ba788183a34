"""JSON lines: plain, gzip or zstd, one object a line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import ceil
from typing import ClassVar

from shardtools import keys
from shardtools.errors import UsageError
from shardtools.extents import extent, identity
from shardtools.formats import Encoder
from shardtools.partitions import partition_bytes, tapered
from shardtools.plan import Partition, ShardLimit
from shardtools.sample import Batch, Field, Reject, RejectSink
from shardtools.sources import PATH_FIELD, PREVIEW_KEYS, Survey, SurveyRequest, escape_note
from shardtools.sources._json_records import BadLine, Records, parse
from shardtools.sources._line_files import LINE_SUFFIXES, FirstRecords, first_records, key_prefix, line_files, refuse_same_prefixes
from shardtools.sources._lines import BOM, JSON_SPACE, Place, Places, line_blocks
from shardtools.sources._record_layout import RECORD_FIELD, FieldMapping, RecordLayout, parse_mappings
from shardtools.sources._settle import settle_layout
from shardtools.sources._streams import DamagedStreamError, Window
from shardtools.sources._text_files import TextFile, text_files
from shardtools.sources._wanted_field import wanted_mapping
from shardtools.sources._windows import LineFile, Piece, cut_by_bytes, cut_by_records
from shardtools.units import parse_bytes

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
        if request.shuffle_seed is not None:
            raise UsageError("expected --shuffle with files only so far, got JSON lines; leave it out and shuffle when training")
        roots = [given.root for given in request.inputs]
        files, skipped = line_files(request.inputs)
        if self.key is None:
            refuse_same_prefixes(files, roots)
        first = first_records(files, roots, self.max_line_bytes)
        layout, fields, notes = self._settled(first, request)
        ratio, sampled_keys = _measured(first, layout, request.format.encoder(fields, request.limit.num_bytes))
        ratio = ratio if request.stored_ratio is None else request.stored_ratio
        escaped = [(keys.unescape_key(key), key) for key in sampled_keys if b"=" in key]
        return Survey(
            source=replace(self, layout=layout),
            fields=fields,
            partitions=list(self._partitions(files, roots, ratio, request)),
            preview=[key.decode() for key in sampled_keys[:PREVIEW_KEYS]],
            notes=notes + [f"of the first {len(sampled_keys)}: {note}" for note in escape_note(len(escaped), escaped)],
            skipped=skipped,
            newest_ns=max(file.modified_ns for file in files),
            expected_bytes=int(ratio * sum(file.text_bytes for file in files)),
        )

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink) -> Iterator[Batch]:
        for packed in extents:
            _, root, path, begin, end, file_bytes = identity(packed).split(b"\0")
            yield from self._read_window(roots[int(root)], Window(path, int(begin), int(end), int(file_bytes)), reject)

    def _settled(self, first: FirstRecords, request: SurveyRequest) -> tuple[RecordLayout, tuple[Field, ...], list[str]]:
        records = [record for _, found in first.found for record in found.values]
        if not records:
            bad = "blank lines" if first.first_bad is None else f"blank or bad lines, first this one: {first.first_bad}"
            raise UsageError(f"expected at least one record, got only {bad}")
        if request.settled is not None and self.layout is not None:
            return self.layout, request.settled, []
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
            layout, fields, notes = settle_layout(draft, mappings, records, encodings, request.format)
            notes = notes if request.wanted is None else []
        if self.keep_path:
            if any(field.name == PATH_FIELD for field in fields):
                raise UsageError(f"expected no record field {PATH_FIELD!r} beside --keep-path, got one; rename it with --map")
            fields = (*fields, Field(PATH_FIELD, "str"))
        return layout, tuple(sorted(fields, key=lambda field: field.name)), notes

    def _partitions(self, files: Sequence[LineFile], roots: Sequence[str], ratio: float, request: SurveyRequest) -> Iterator[Partition]:
        text_bytes = sum(file.text_bytes for file in files)
        target = partition_bytes(text_bytes, ratio, request.limit.num_bytes)
        sizes = tapered(text_bytes, target) if request.is_slow else repeat(target)
        cuts: Iterator[tuple[list[Piece], int | None]] = ((pieces, None) for pieces in cut_by_bytes(files, sizes))
        if request.limit.num_samples is not None:
            cuts = iter(cut_by_records(roots, files, request.limit.num_samples, target, self.max_line_bytes))
        for index, (pieces, num_records) in enumerate(cuts):
            text_bytes = sum(piece.text_bytes for piece in pieces)
            num_shards = _estimated_shards(request.limit, text_bytes * ratio, num_records)
            yield Partition(index, [_extent(piece) for piece in pieces], text_bytes, num_records, num_shards)

    def _read_window(self, root: str, window: Window, reject: RejectSink) -> Iterator[Batch]:
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
                batch = self.layout.batch(records, prefix, place, reject)
                del block, records
                batch.num_blank = num_blank
                if batch.keys or num_blank:
                    yield batch
                del batch
        except DamagedStreamError as fault:
            reject(Reject(fault.reason, places.at(fault.offset), fault.sentence))


def _measured(first: FirstRecords, layout: RecordLayout, encoder: Encoder) -> tuple[float, list[bytes]]:
    """Stored bytes per byte of text in the first records, and their keys; uses the records up."""
    text_bytes = stored_bytes = 0
    sampled_keys: list[bytes] = []
    while first.found:
        text_bytes += sum(len(line) + 1 for line in first.found[0][1].lines)
        batch = layout.batch(*_next_records(first), lambda _: "", lambda _: None)
        stored_bytes += sum(encoder.encode(batch, lambda _: None).costs)
        sampled_keys += batch.keys
    return max(stored_bytes, 1) / text_bytes, sampled_keys


def _next_records(first: FirstRecords) -> tuple[Records, bytes]:
    file, records = first.found.pop(0)
    return records, key_prefix(file.path)


def _estimated_shards(limit: ShardLimit, stored_bytes: float, num_records: int | None) -> int:
    if limit.num_bytes is not None:
        return max(1, ceil(stored_bytes / limit.num_bytes))
    return ceil((num_records or 1) / (limit.num_samples or 1))


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
    return extent([window.path + b"@" + numbers[0], b"%d" % piece.file.root, window.path, *numbers], b"%d" % piece.file.modified_ns)
