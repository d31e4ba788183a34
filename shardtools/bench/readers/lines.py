"""Lines of JSON lines files at known places."""

from array import array
from collections.abc import Iterator
from typing import Any

import orjson

from shardtools import keys
from shardtools.bench.readers.opened import open_text
from shardtools.bench.readers.recipes import recipe_like
from shardtools.bench.spec import Workload
from shardtools.sources import resolve_inputs
from shardtools.sources.jsonl import BOM, JSON_SPACE, TextFile, text_files

_UNKNOWN = 1 << 62


def line_files(uri: str) -> list[TextFile]:
    """The files of one side. Raises UsageError where there are none."""
    return text_files(resolve_inputs([uri.removeprefix("file://")]))


def record_key_field(workload: Workload) -> str | None:
    """The record field that is the key, where the recipe of ``workload.like`` says so."""
    recipe = recipe_like(workload)
    source: dict[str, Any] = {} if recipe is None else recipe["source"]
    return source.get("key") if source.get("name") == "jsonl" else None


def key_of(file: TextFile, offset: int, line: bytes, key_field: str | None) -> str:
    """What packing names the record."""
    if key_field is None:
        return file.key(offset)
    return keys.escape_key(str(orjson.loads(line)[key_field]).encode()).decode()


def record_of(line: bytes, offset: int) -> bytes:
    """The record as packing stores it; empty where the line is blank."""
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    line = line if offset else line.removeprefix(BOM)
    return line if line.strip(JSON_SPACE) else b""


def index_lines(file: TextFile) -> "array[int]":
    """Where each record begins, found by reading all text once."""
    offsets, at = array("q"), 0
    with open_text(file.path) as lines:
        for line in lines:
            if record_of(line, at):
                offsets.append(at)
            at += len(line)
    return offsets


def lines_between(file: Any, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a stretch of an open binary file, each with its place."""
    at = begin
    if begin:
        file.seek(begin - 1)
        at += len(file.readline()) - 1  # the rest of a line that began before, or the end of it alone
    while at < end and (line := file.readline()):
        yield at, line
        at += len(line)


def lines_of_pieces(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a text that comes in pieces."""
    at, rest = 0, b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield at, line
            at += len(line) + 1
    if rest:
        yield at, rest


def windows_of(files: list[TextFile], window_bytes: int) -> list[tuple[int, int, int]]:
    """All text cut into stretches: file, begin, end. A compressed file is one."""
    found = []
    for i, file in enumerate(files):
        if file.is_compressed:
            found.append((i, 0, _UNKNOWN))
            continue
        found += [(i, begin, min(begin + window_bytes, file.num_bytes)) for begin in range(0, file.num_bytes, window_bytes)]
    return found
