"""Which files of the inputs hold lines, and the first records in them."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from shardtools.places import at_once
from shardtools.sources import Input, _data_files
from shardtools.sources._data_files import COMPRESSIONS, DataFile, data_files, without_suffix
from shardtools.sources._json_records import BadLine, Records, parse, with_all_digits
from shardtools.sources._lines import BLOCK_BYTES, LineBlock, Place, Places, expansion, line_blocks
from shardtools.sources._streams import DamagedStreamError
from shardtools.sources._windows import LineFile
from shardtools.storage import open_storage

LINE_SUFFIXES = tuple(kind + compression for kind in (".jsonl", ".ndjson") for compression in ("", ".gz", ".zst"))
"""What marks a file in a folder as JSON lines; ``.json`` does not, since it usually is one document."""
_SUFFIXES = (b".jsonl", b".ndjson", b".json")
_INFERENCE_RECORDS = 1000
_INFERENCE_BYTES = 32 << 20


def key_prefix(path: bytes) -> bytes:
    """The file's part of keys made of offsets: its path without data suffix."""
    return without_suffix(without_suffix(path, COMPRESSIONS), _SUFFIXES)


@dataclass(frozen=True)
class LineFiles:
    """What inputs hold."""

    files: list[LineFile]
    """Ordered by input, then by the bytes of their paths."""
    skipped: dict[str, int]
    """What was left out, counted."""
    newest_ns: int
    """The latest modification of any of them; of objects, of anything that was listed."""


def line_files(inputs: Sequence[Input]) -> LineFiles:
    """The files that hold lines. Raises UsageError where there are none."""
    listed = data_files(inputs, LINE_SUFFIXES, "JSON lines")
    files: list[LineFile] = []
    for root, given in enumerate(inputs):
        stored = [file for file in listed.files if file.root == root]
        ratios = _expansions(given.root, stored)
        files += [
            LineFile(root, file.path, file.num_bytes, file.version, int(file.num_bytes * ratio))
            for file, ratio in zip(stored, ratios, strict=True)
        ]
    return LineFiles(files, listed.skipped, listed.newest_ns)


def _expansions(root: str, files: Sequence[DataFile]) -> Iterator[float]:
    """Beginnings of files are read for them, and those in an object store are far away."""
    return at_once(open_storage(root), lambda file: expansion(root, file.window()), files)


def refuse_same_prefixes(files: Sequence[LineFile], roots: Sequence[str]) -> None:
    """Raises DuplicateKeyError for two files whose keys would be the same."""
    _data_files.refuse_same_prefixes(files, roots, key_prefix)


@dataclass
class FirstRecords:
    """The records that settle types, and what was seen on the way to them."""

    found: list[tuple[LineFile, Records]] = field(default_factory=list)
    first_bad: str | None = None
    """Place and reason of the first bad line."""


def first_records(files: Sequence[LineFile], roots: Sequence[str], max_line_bytes: int) -> FirstRecords:
    """Up to 1,000 records or 32 MiB of lines from the beginning of the input, but one at least; bad lines are left to the run."""
    first = FirstRecords()
    missing, missing_bytes = _INFERENCE_RECORDS, _INFERENCE_BYTES
    for file in files:
        for records in _records(file, roots[file.root], max_line_bytes, first):
            ends = list(accumulate(map(len, records.lines)))
            count = min(missing, len(ends), bisect_left(ends, missing_bytes) + 1)
            taken = with_all_digits(records.take(range(count)))
            del records
            first.found.append((file, taken))
            missing -= count
            missing_bytes -= ends[count - 1] if count else 0
            if missing <= 0 or missing_bytes <= 0:
                return first
    return first


def _records(file: LineFile, root: str, max_line_bytes: int, first: FirstRecords) -> Iterator[Records]:
    places = Places(root, file.window())
    try:
        for block in line_blocks(root, file.window(), max_line_bytes, until=BLOCK_BYTES):
            place = places.of(block)

            def on_bad(bad: BadLine, place: Place = place) -> None:
                if first.first_bad is None:
                    first.first_bad = f"{place(bad.offset)}: {bad.sentence}"

            lines, offsets = block.lines[:_INFERENCE_RECORDS], block.offsets[:_INFERENCE_RECORDS]
            part = LineBlock(block.offset, lines, block.num_bytes, block.num_before, block.is_too_long, offsets)
            del block, lines
            yield parse(part, max_line_bytes, on_bad)
    except DamagedStreamError as fault:
        if first.first_bad is None:
            first.first_bad = f"{places.at(fault.offset)}: {fault.sentence}"
