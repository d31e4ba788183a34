"""Which files of the inputs hold lines, and the first records in them."""

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from shardtools.errors import DuplicateKeyError, UsageError
from shardtools.sources import Input
from shardtools.sources._json_records import BadLine, Records, parse, with_all_digits
from shardtools.sources._lines import LineBlock, Place, Places, expansion, line_blocks
from shardtools.sources._scan import scan
from shardtools.sources._streams import DamagedStreamError, Window
from shardtools.sources._windows import LineFile

LINE_SUFFIXES = tuple(kind + compression for kind in (".jsonl", ".ndjson") for compression in ("", ".gz", ".zst"))
"""What marks a file in a folder as JSON lines; ``.json`` does not, since it usually is one document."""
_SUFFIXES = (b".jsonl", b".ndjson", b".json")
_COMPRESSIONS = (b".gz", b".zst")
_INFERENCE_RECORDS = 1000
_INFERENCE_BYTES = 32 << 20


def key_prefix(path: bytes) -> bytes:
    """The file's part of keys made of offsets: its path without data suffix."""
    return _without(_without(path, _COMPRESSIONS), _SUFFIXES)


def line_files(inputs: Sequence[Input]) -> tuple[list[LineFile], dict[str, int]]:
    """The files, ordered by input, then by the bytes of their paths, and what was left out, counted."""
    files: list[LineFile] = []
    skipped: Counter[str] = Counter()
    for root, given in enumerate(inputs):
        found = scan(given)
        skipped += found.skipped
        for folder, entry in found.entries():
            name, num_bytes, modified_ns = entry.split(b"\0")
            path = os.path.join(folder, name)
            if given.paths is None and not os.fsdecode(path).lower().endswith(LINE_SUFFIXES):
                skipped["not JSON lines"] += 1
                continue
            size = max(int(num_bytes), 0)
            text_bytes = int(size * expansion(given.root, Window(path, 0, 0, size)))
            files.append(LineFile(root, path, size, int(modified_ns), text_bytes))
    if not files:
        raise UsageError(f"expected .jsonl or .ndjson files, also .gz or .zst, got none in {', '.join(given.root for given in inputs)}")
    return sorted(files, key=lambda file: (file.root, file.path)), dict(sorted(skipped.items()))


def refuse_same_prefixes(files: Sequence[LineFile], roots: Sequence[str]) -> None:
    """Raises DuplicateKeyError for two files whose keys would be the same."""
    seen: dict[bytes, LineFile] = {}
    for file in files:
        other = seen.setdefault(key_prefix(file.path), file)
        if other is not file:
            places = [f"{roots[f.root]}/{os.fsdecode(f.path)}" for f in (other, file)]
            raise DuplicateKeyError(
                f"expected files whose paths differ before the suffix, since keys are made of them, got {places[0]} and {places[1]}; "
                "rename one, pack their parent folder, or take keys from the records with --key FIELD"
            )


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
        for block in line_blocks(root, file.window(), max_line_bytes):
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


def _without(path: bytes, suffixes: Sequence[bytes]) -> bytes:
    for suffix in suffixes:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)]
    return path
