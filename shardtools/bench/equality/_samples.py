"""The first samples of a side as its reader delivers them, but for the library that reads it: what to try functions on."""

from collections.abc import Iterator

from torch.utils.data import DataLoader

from shardtools.bench.readers._open import open_reader
from shardtools.bench.readers.lines import key_of, line_files, lines_of_pieces, record_key_field, record_of
from shardtools.bench.readers.opened import open_file, open_text
from shardtools.bench.readers.side import KEY, Delivery, RawSample
from shardtools.bench.readers.small_files import list_samples
from shardtools.bench.spec import Layout, Workload
from shardtools.datasets import open_dataset

_PIECE_BYTES = 1 << 20


def first_samples(layout: Layout, workload: Workload) -> Iterator[RawSample]:
    """In the order of the layout; it ends with the side. Rows that are made on the fly are made as in a trial."""
    if layout.kind == "jsonl" and workload.decode == "tokens":
        return _made(layout, workload)
    return {"files": _files, "jsonl": _lines}.get(layout.kind, _shards)(layout, workload)


def _files(layout: Layout, workload: Workload) -> Iterator[RawSample]:
    samples = list_samples(layout.uri, workload)
    for i in range(len(samples)):
        raw: RawSample = {KEY: samples[i].key}
        for field, path in samples[i].files:
            with open_file(path) as file:
                raw[field] = file.read()
        yield raw


def _lines(layout: Layout, workload: Workload) -> Iterator[RawSample]:
    key_field = record_key_field(workload)
    for file in line_files(layout.uri):
        for offset, line in lines_of_pieces(file.text() if file.is_compressed else _pieces(file.path)):
            if record := record_of(line, offset):
                yield {KEY: key_of(file, offset, record, key_field), "json": record}


def _pieces(path: str) -> Iterator[bytes]:
    with open_text(path) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _shards(layout: Layout, _: Workload) -> Iterator[RawSample]:
    for shard, sample in open_dataset(layout.uri).all_samples():
        key_name = shard.format.key_name
        yield {KEY: sample.key} | {name: bytes(value) for name, value in sample.values.items() if name != key_name}


def _made(layout: Layout, workload: Workload) -> Iterator[RawSample]:
    side = open_reader(layout, workload, Delivery(_as_it_is, list))
    try:
        for rows in DataLoader(side.dataset, **side.loader_kwargs):
            yield from rows
    finally:
        side.close()


def _as_it_is(raw: RawSample) -> RawSample:
    return {KEY: ""} | {name: value for name, value in raw.items() if name != "pieces"}
