"""JSON lines: plain, gzip or zstd, one object a line."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

from shardtools import keys
from shardtools.errors import UsageError
from shardtools.plan import Partition, ShardLimit, extent, identity, partition_bytes
from shardtools.sample import Batch, Field, Reject, RejectSink
from shardtools.sources import Survey, SurveyRequest, escape_note
from shardtools.sources._file_reader import shown
from shardtools.sources._json_records import BadLine, Record, parse
from shardtools.sources._line_files import LINE_SUFFIXES, first_records, key_prefix, line_files, refuse_same_prefixes
from shardtools.sources._lines import DamagedStreamError, LineBlock, Window, line_blocks, num_lines_before
from shardtools.sources._record_layout import PATH_FIELD, RECORD_FIELD, FieldMapping, Place, RecordLayout, parse_mappings, settle_layout
from shardtools.sources._windows import LineFile, Piece, cut_by_bytes, cut_by_records
from shardtools.units import parse_bytes

_PREVIEW_KEYS = 5


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

    @classmethod
    def from_words(cls, words: Mapping[str, Any]) -> "Jsonl":
        """From what a user typed: ``key``, ``map``, ``keep_path``, ``max_line_bytes``; None where nothing was said."""
        limit = words["max_line_bytes"]
        return cls(
            key=words["key"],
            map=None if words["map"] is None else parse_mappings(words["map"]),
            keep_path=bool(words["keep_path"]),
            max_line_bytes=cls.max_line_bytes if limit is None else parse_bytes(limit),
        )

    def survey(self, request: SurveyRequest) -> Survey:
        if request.shuffle_seed is not None:
            raise UsageError("expected --shuffle with files only so far, got JSON lines; leave it out and shuffle when training")
        roots = [given.root for given in request.inputs]
        files, skipped = line_files(request.inputs)
        if self.key is None:
            refuse_same_prefixes(files, roots)
        sample = first_records(files, roots, self.max_line_bytes)
        records = [record for _, found in sample for record in found.values]
        if not records:
            raise UsageError("expected at least one record, got only blank or bad lines at the beginning of the input")
        layout, fields, notes = self._settled(records, request)
        batches = [layout.batch(found, key_prefix(file.path), lambda _: "", lambda _: None) for file, found in sample]
        costs = [request.format.encoder(fields, request.limit.num_bytes).encode(batch, lambda _: None).costs for batch in batches]
        ratio = max(sum(map(sum, costs)), 1) / sum(len(line) + 1 for _, found in sample for line in found.lines)
        sampled_keys = [key for batch in batches for key in batch.keys]
        escaped = [(keys.unescape_key(key), key) for key in sampled_keys if b"=" in key]
        return Survey(
            source=replace(self, layout=layout),
            fields=fields,
            partitions=list(self._partitions(files, roots, ratio, request)),
            preview=[key.decode() for key in sampled_keys[:_PREVIEW_KEYS]],
            notes=notes + [f"of the first {len(sampled_keys)}: {note}" for note in escape_note(len(escaped), escaped)],
            skipped=skipped,
            newest_ns=max(file.modified_ns for file in files),
            expected_bytes=int(ratio * sum(file.text_bytes for file in files)),
        )

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink) -> Iterator[Batch]:
        for packed in extents:
            _, root, path, begin, end, file_bytes = identity(packed).split(b"\0")
            yield from self._read_window(roots[int(root)], Window(path, int(begin), int(end), int(file_bytes)), reject)

    def _settled(self, records: Sequence[Record], request: SurveyRequest) -> tuple[RecordLayout, tuple[Field, ...], list[str]]:
        whole = request.format.index_name is None and self.map is None
        fields: tuple[Field, ...]
        draft = RecordLayout(self.key, (), None, whole, self.keep_path, exact=(self.key,) if self.key else ())
        if whole:
            if request.encodings:
                raise UsageError("expected --columns with MDS only, got it with WDS, which stores records as they are; leave it out")
            layout, fields, notes = draft, (Field(RECORD_FIELD, "json"),), list[str]()
        else:
            layout, fields, notes = settle_layout(draft, self.map, records, request.encodings, request.format)
        if self.keep_path:
            if any(field.name == PATH_FIELD for field in fields):
                raise UsageError(f"expected no record field {PATH_FIELD!r} beside --keep-path, got one; rename it with --map")
            fields = (*fields, Field(PATH_FIELD, "str"))
        return layout, tuple(sorted(fields, key=lambda field: field.name)), notes

    def _partitions(self, files: Sequence[LineFile], roots: Sequence[str], ratio: float, request: SurveyRequest) -> Iterator[Partition]:
        target = partition_bytes(sum(file.text_bytes for file in files), ratio, request.limit.num_bytes)
        cuts: Iterator[tuple[list[Piece], int | None]] = ((pieces, None) for pieces in cut_by_bytes(files, target))
        if request.limit.num_samples is not None:
            cuts = iter(cut_by_records(roots, files, request.limit.num_samples, target, self.max_line_bytes))
        for index, (pieces, num_records) in enumerate(cuts):
            text_bytes = sum(piece.text_bytes for piece in pieces)
            num_shards = _estimated_shards(request.limit, text_bytes * ratio, num_records)
            yield Partition(index, [_extent(piece) for piece in pieces], text_bytes, num_records, num_shards)

    def _read_window(self, root: str, window: Window, reject: RejectSink) -> Iterator[Batch]:
        assert self.layout is not None, "a recipe holds a surveyed source"
        places, prefix = _Places(root, window), key_prefix(window.path)
        try:
            for block in line_blocks(root, window, self.max_line_bytes):
                place = places.of(block)
                records = parse(block, self.max_line_bytes, _bad_line_sink(place, reject))
                batch = self.layout.batch(records, prefix, place, reject)
                if batch.keys:
                    yield batch
        except DamagedStreamError as fault:
            sentence = f"expected a sound compressed stream, got one damaged after {fault.offset} bytes of text: {fault.cause}; restore it"
            reject(Reject("damaged-stream", shown(window.path), sentence))


class _Places:
    """Names lines for people: counting the lines before a window takes a read of its own, so only when one is asked for."""

    def __init__(self, root: str, window: Window) -> None:
        self._root = root
        self._window = window
        self._num_before_window: int | None = None

    def of(self, block: LineBlock) -> Place:
        """The places of one block's lines."""
        begin = block.offset

        def place(offset: int) -> str:
            if self._num_before_window is None:
                self._num_before_window = num_lines_before(self._root, self._window, begin) - block.num_before
            number = self._num_before_window + block.num_before + bisect_left(block.offsets(), offset) + 1
            return f"{shown(self._window.path)}, line {number} (byte {offset})"

        return place


def _estimated_shards(limit: ShardLimit, stored_bytes: float, num_records: int | None) -> int:
    if limit.num_bytes is not None:
        return max(1, ceil(stored_bytes / limit.num_bytes))
    return ceil((num_records or 1) / (limit.num_samples or 1))


def _bad_line_sink(place: Place, reject: RejectSink) -> Callable[[BadLine], None]:
    return lambda bad: reject(Reject(bad.reason, place(bad.offset), bad.sentence, bad.head))


def _extent(piece: Piece) -> bytes:
    window = piece.window
    numbers = [b"%d" % number for number in (window.begin, window.end, window.file_bytes)]
    return extent([window.path + b"@" + numbers[0], b"%d" % piece.file.root, window.path, *numbers], b"%d" % piece.file.modified_ns)
