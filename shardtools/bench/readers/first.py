"""The first sample of a layout, and the names of all, without any of the readers that are measured."""

from collections.abc import Iterator

from shardtools.bench.readers.lines import index_lines, key_of, line_files, record_key_field, record_of
from shardtools.bench.readers.opened import open_file, open_text
from shardtools.bench.readers.side import KEY, RawSample
from shardtools.bench.readers.small_files import list_samples
from shardtools.bench.spec import Layout, Workload
from shardtools.datasets import open_dataset
from shardtools.errors import UsageError


def first_sample(layout: Layout, workload: Workload) -> RawSample:
    """In the order of the layout. Raises UsageError where there is none."""
    if layout.kind == "files":
        key, files = list_samples(layout.uri, workload)[0]
        raw: RawSample = {KEY: key}
        for field, path in files:
            with open_file(path) as file:
                raw[field] = file.read()
        return raw
    if layout.kind == "jsonl":
        return {KEY: "", "json": _first_record(layout.uri)}
    dataset = open_dataset(layout.uri)
    for shard, sample in dataset.all_samples():
        key_name = shard.format.key_name
        return {KEY: sample.key} | {name: bytes(value) for name, value in sample.values.items() if name != key_name}
    raise UsageError(f"expected a dataset with samples, got none in {layout.uri}")


def all_keys(layout: Layout, workload: Workload) -> Iterator[str]:
    """The key of every sample, from names and headers. Not for JSON lines that are tokenized on the fly, whose rows have none."""
    if layout.kind == "files":
        yield from list_samples(layout.uri, workload).keys()
    elif layout.kind == "jsonl":
        key_field = record_key_field(workload)
        for file in line_files(layout.uri):
            with open_text(file.path) as lines:
                for offset in index_lines(file):
                    lines.seek(offset)
                    yield key_of(file, offset, record_of(lines.readline(), offset), key_field)
    else:
        yield from (sample.key for _, sample in open_dataset(layout.uri).all_samples())


def _first_record(uri: str) -> bytes:
    for file in line_files(uri):
        if file.is_compressed:
            text = b"".join(piece for piece, _ in zip(file.text(), range(64), strict=False))
            lines = text.splitlines()
        else:
            with open_text(file.path) as opened:
                lines = [line for line, _ in zip(opened, range(1000), strict=False)]
        for i, line in enumerate(lines):
            if record := record_of(line, i):
                return record
    raise UsageError(f"expected at least one JSON line, got none in {uri}")
