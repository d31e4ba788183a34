"""Shards back to files, one for each value, named ``{key}.{field}``.

Tar members come back byte for byte under their own name. MDS columns become files by their encoding:

* ``bytes`` as they are, in ``.{column}``; likewise pickles and other opaque encodings.
* ``jpeg``, ``png``, ``json``, ``str`` as they are, in ``.{column}`` where the column is named like such a file
  (``jpg``, ``json``, ``txt``, ``html`` ...), else in ``.{column}.jpg``, ``.png``, ``.json``, ``.txt``.
* numbers as decimal text in ``.{column}``; arrays in ``.{column}.npy``.

The key column is no file. A value that was absent when it was packed is an empty file (``null`` for JSON). Keys stay as
they are, escapes too.
"""

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from shardtools.datasets import Dataset, Shard
from shardtools.errors import DamagedShardError, UsageError
from shardtools.explore._files import ExtractFolder
from shardtools.explore.show import COMPARED_KEYS, key_forms, near_keys
from shardtools.formats import StoredSample
from shardtools.sample import brief
from shardtools.units import plural

_EXTENSIONS = {
    "jpeg": ("jpg", "jpeg"),
    "png": ("png",),
    "json": ("json", "jsn"),
    "str": ("txt", "text", "md", "html", "htm", "xml", "svg", "csv", "tsv", "yaml", "yml", "srt", "vtt", "tex", "log", "py"),
    "ndarray": ("npy",),
}
"""Column names that are file extensions by themselves, for each encoding; the first is the one that is added otherwise."""
_NUMBERS = ("int", "uint", "float")


@dataclass(frozen=True)
class Extracted:
    """What was written."""

    num_samples: int
    num_files: int
    """New files."""
    num_unchanged: int
    """Files that were there already with the same bytes."""
    num_bytes: int
    """In new files."""

    def as_json(self) -> dict[str, Any]:
        return {"samples": self.num_samples, "files": self.num_files, "unchanged": self.num_unchanged, "bytes": self.num_bytes}


def _ignore(num_bytes: int) -> None:
    """For callers that show no progress."""


@dataclass(frozen=True)
class ExtractOptions:
    """Which samples are extracted, and to what kind of place."""

    keys: Collection[str] | None = None
    """None: all."""
    folds_case: bool | None = None
    """Whether the destination takes names that differ only by case as one; None: found out by trying."""
    on_sample: Callable[[int], None] = _ignore
    """Called for each sample with its bytes."""


def extract(dataset: Dataset, out: str, options: ExtractOptions = ExtractOptions()) -> Extracted:
    """Write samples as files below ``out``. Running it again is allowed and writes only what is not there.

    Raises ShardtoolsError where another file is in the way, where two values would be one file, and for a name that would
    lead out of ``out``; UsageError, after all others are written, for a key that is not there.
    """
    folder = ExtractFolder(out, options.folds_case)
    wanted = None if options.keys is None else {form for key in options.keys for form in key_forms(key)}
    found: set[str] = set()
    seen: list[str] = []
    total = Extracted(0, 0, 0, 0)
    for shard, sample in dataset.all_samples():
        if wanted is None or sample.key in wanted:
            if wanted is not None:
                found.add(sample.key)
            total = _write(dataset, shard, sample, folder, total)
            options.on_sample(sum(map(len, sample.values.values())))
        elif len(seen) < COMPARED_KEYS:
            seen.append(sample.key)
    missing = [key for key in sorted(options.keys or ()) if found.isdisjoint(key_forms(key))]
    if missing:
        more = f" and {plural(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
        raise UsageError(
            f"expected keys of samples, got {brief(missing[0])}{more}, not in {dataset.uri}{near_keys(missing[0], seen)}; "
            f"{plural(total.num_samples, 'sample')} of the other keys extracted"
        )
    return total


def _write(dataset: Dataset, shard: Shard, sample: StoredSample, folder: ExtractFolder, total: Extracted) -> Extracted:
    num_files = num_unchanged = num_bytes = 0
    for name, value in sample.values.items():
        if shard.entry is not None or dataset.format_name == "mds":
            if name == shard.format.key_name:
                continue
            file_name, data = _column_file(dataset, shard, sample, name, value)
        else:
            file_name, data = f"{sample.key}.{name}" if name else sample.key, value
        is_new = folder.write(file_name, data)
        num_files += is_new
        num_unchanged += not is_new
        num_bytes += len(data) if is_new else 0
    return Extracted(total.num_samples + 1, total.num_files + num_files, total.num_unchanged + num_unchanged, total.num_bytes + num_bytes)


def _column_file(dataset: Dataset, shard: Shard, sample: StoredSample, column: str, value: memoryview) -> tuple[str, bytes | memoryview]:
    """The name and content of the file for one value of an MDS row."""
    encoding = dataset.field(shard, column).encoding
    kind = encoding.partition(":")[0]
    stem = f"{sample.key}.{_file_part(column)}"
    extensions = _EXTENSIONS.get(kind, ())
    name = stem if not extensions or column.lower().rpartition(".")[2] in extensions else f"{stem}.{extensions[0]}"
    if kind != "ndarray" and not kind.startswith(_NUMBERS):
        return name, value
    try:
        number = dataset.decode(shard, column, value)
    except ValueError as error:
        raise DamagedShardError(f"{shard.name}: sample {sample.key!r}, column {column!r}: {error}", sample.offset) from None
    return name, _npy(number) if kind == "ndarray" else str(number).encode()


def _file_part(column: str) -> str:
    """A column's name as part of a file name; a slash in it makes no folder."""
    return column.replace("=", "=3D").replace("/", "=2F").replace("\\", "=5C").replace("\0", "=00")


def _npy(array: Any) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
