"""Which files of the inputs hold lines, and the first records in them."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from shardtools.errors import DuplicateKeyError, UsageError
from shardtools.sources import Input
from shardtools.sources._json_records import Records, parse, with_all_digits
from shardtools.sources._lines import DamagedStreamError, LineBlock, Window, expansion, line_blocks
from shardtools.sources._scan import scan
from shardtools.sources._windows import LineFile

LINE_SUFFIXES = tuple(kind + compression for kind in (".jsonl", ".ndjson") for compression in ("", ".gz", ".zst"))
"""What marks a file in a folder as JSON lines; ``.json`` does not, since it usually is one document."""
_SUFFIXES = (b".jsonl", b".ndjson", b".json")
_COMPRESSIONS = (b".gz", b".zst")
_INFERENCE_RECORDS = 1000


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


def first_records(files: Sequence[LineFile], roots: Sequence[str], max_line_bytes: int) -> list[tuple[LineFile, Records]]:
    """Up to 1,000 records from the beginning of the input; bad lines are left to the run."""
    found: list[tuple[LineFile, Records]] = []
    missing = _INFERENCE_RECORDS
    for file in files:
        for records in _records(file, roots[file.root], max_line_bytes):
            taken = records.take(range(min(missing, len(records.values))))
            found.append((file, taken))
            missing -= len(taken.values)
            if missing <= 0:
                return found
    return found


def _records(file: LineFile, root: str, max_line_bytes: int) -> Iterator[Records]:
    try:
        for block in line_blocks(root, file.window(), max_line_bytes):
            lines = block.lines[:_INFERENCE_RECORDS]
            part = LineBlock(block.offset, lines, block.num_bytes, block.num_before, block.is_too_long)
            records = parse(part, max_line_bytes, lambda _: None)
            try:
                yield with_all_digits(records)
            except RecursionError:
                # Too deep for exact numbers; reading says so, sample by sample.
                yield records
    except DamagedStreamError:
        return


def _without(path: bytes, suffixes: Sequence[bytes]) -> bytes:
    for suffix in suffixes:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)]
    return path
