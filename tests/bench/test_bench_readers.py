"""Every reader delivers every sample once, decoded to what PIL and the tokenizers library make of it; stops a benchmark whose
sides do different work, and readers that leave files or shared memory behind.
"""

import gzip
import io
import os
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from bench_sides import QUIET, as_files, as_lines, as_mds, as_tars, batches, ids_of, pack_tokens, pictures, resized, small_tokenizer
from torch.utils.data import DataLoader

from shardtools.bench.readers import Side, _own, _stopwatch, layouts_of, open_side, settle_workload
from shardtools.bench.readers._stopwatch import Stopwatch, now, timed_parse
from shardtools.bench.readers.lines import lines_between, lines_of_pieces
from shardtools.bench.spec import Layout, Settings, Workload
from shardtools.bench.timers import STAGES, StageTimers
from shardtools.errors import UsageError

pytestmark = [
    *QUIET,
    # webdataset and StreamingDataset leave closing their files to Python.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]

SAMPLES = pictures(45)
READERS = [
    ("files", "torch"),
    ("wds", "webdataset"),
    ("wds", "shardtools"),
    ("mds", "shardtools"),
    ("mds", "streaming"),
]
ENCODINGS = {"json": "bytes", "png": "png"}


@pytest.fixture(scope="module", autouse=True)
def quiet_libraries(streaming, webdataset):
    """Imported once, with their own warnings."""


@pytest.fixture(scope="module")
def uris(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    return {
        "files": as_files(folder / "files", SAMPLES),
        "wds": as_tars(folder / "wds", SAMPLES),
        "mds": as_mds(folder / "mds", SAMPLES, ENCODINGS),
    }


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder of all temporary files of the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def shm_names():
    return {name for name in os.listdir("/dev/shm") if name.startswith("1") and "_" in name}


def read(side: Side, num_workers: int) -> list:
    try:
        return batches(side, num_workers)
    finally:
        side.close()


@pytest.mark.parametrize(("kind", "reader"), READERS)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_images_come_once_each_as_pil_has_them(uris, temporary, kind, reader, num_workers):
    before = shm_names()
    workload = Workload(batch_size=8, image_side=6)
    side = open_side(Layout(uris[kind], kind, reader), workload, Settings(num_workers))
    # Only reading tells how many samples are in tars that nothing describes.
    assert side.num_samples == (None if reader == "webdataset" else 45)
    found = read(side, num_workers)
    assert {batch.dtype for batch in found} == {torch.uint8} and {tuple(batch.shape[1:]) for batch in found} == {(3, 6, 6)}
    assert max(map(len, found)) == 8
    assert sorted(image.numpy().tobytes() for batch in found for image in batch) == resized(SAMPLES, 6)
    assert os.listdir(temporary) == [] and shm_names() == before


@pytest.mark.parametrize(("kind", "reader"), READERS)
def test_bytes_are_those_of_all_fields(uris, kind, reader):
    side = open_side(Layout(uris[kind], kind, reader), Workload(batch_size=7, decode="none"), Settings(0))
    found = []
    for data, lengths in read(side, 0):
        ends = np.cumsum(lengths.numpy())
        assert ends[-1] == len(data)
        found += [bytes(data[begin:end].numpy()) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    assert sorted(found) == sorted(fields["json"] + fields["png"] for fields in SAMPLES.values())


@pytest.mark.parametrize(("kind", "reader"), READERS)
def test_without_shuffle_samples_come_in_order(uris, kind, reader):
    side = open_side(Layout(uris[kind], kind, reader), Workload(batch_size=45, image_side=6, shuffle=False), Settings(0))
    (batch,) = read(side, 0)
    keys = sorted(SAMPLES) if kind == "files" else list(SAMPLES)
    assert [image.numpy().tobytes() for image in batch] == [resized({"one": SAMPLES[key]}, 6)[0] for key in keys]


@pytest.mark.parametrize(("kind", "reader"), READERS)
def test_shuffled_orders_differ_from_those_of_the_layout(uris, kind, reader):
    side = open_side(Layout(uris[kind], kind, reader), Workload(batch_size=45, image_side=6, seed=3), Settings(0))
    (batch,) = read(side, 0)
    assert [image.numpy().tobytes() for image in batch] != [resized({"one": fields}, 6)[0] for fields in SAMPLES.values()]


@pytest.mark.parametrize(("kind", "reader"), READERS)
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_timers_count_each_sample_in_each_stage_there_is(uris, kind, reader, num_workers):
    timers = StageTimers(num_workers)
    side = open_side(Layout(uris[kind], kind, reader), Workload(batch_size=8, image_side=6), Settings(num_workers), timers)
    num_batches = len(read(side, num_workers))
    totals = timers.totals()
    payload = sum(len(value) for fields in SAMPLES.values() for value in fields.values())
    has_parse = reader in ("webdataset", "streaming")
    assert {stage: totals[stage]["count"] for stage in STAGES} == {
        "storage": 45,
        "parse": 45 if has_parse else 0,
        "decode": 45,
        "transform": 45,
        "collate": num_batches,
    }
    assert totals["decode"]["bytes"] == payload <= totals["storage"]["bytes"]
    assert all(totals[stage]["wall_s"] > 0 for stage in STAGES if totals[stage]["count"])
    assert totals["parse"]["wall_s"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "reader"), READERS)
def test_workers_that_are_started_anew_read_alike(uris, kind, reader):
    """Everything they need reaches them pickled, timers too."""
    timers = StageTimers(2)
    side = open_side(Layout(uris[kind], kind, reader), Workload(batch_size=8, image_side=6), Settings(2), timers)
    found = list(DataLoader(side.dataset, num_workers=2, multiprocessing_context="spawn", **side.loader_kwargs))
    side.close()
    assert sorted(image.numpy().tobytes() for batch in found for image in batch) == resized(SAMPLES, 6)
    assert timers.totals()["decode"]["count"] == timers.totals()["storage"]["count"] == 45


def test_time_in_storage_is_none_of_parsing():
    """An item that took no time to parse, of which storage says that it took five seconds."""
    timers, storage = StageTimers(0), Stopwatch()

    def items():
        wall, cpu = now()
        storage.add((wall - 5, cpu - 2), 7)
        yield "item"

    assert list(timed_parse(items(), timers, storage)) == ["item"]
    totals = timers.totals()
    assert totals["storage"] | {"wall_s": 5, "cpu_s": 2, "blocked_s": 3} == {
        "wall_s": 5,
        "cpu_s": 2,
        "blocked_s": 3,
        "bytes": 7,
        "count": 1,
    }
    assert -5 <= totals["parse"]["wall_s"] < -4 and -2 <= totals["parse"]["cpu_s"] < -1


def test_time_to_finish_a_sample_is_none_of_storage(monkeypatch):
    """Samples that take a second each to read and five to finish, read two at a time, by a clock of this test."""
    clock = [0.0]
    monkeypatch.setattr(_own, "now", lambda: (clock[0], 0.0))
    monkeypatch.setattr(_stopwatch, "now", lambda: (clock[0], 0.0))

    def finish(raw):
        clock[0] += 5
        return raw["x"]

    def samples():
        for _ in range(2):
            batch = []
            for _ in range(2):
                clock[0] += 1
                batch.append(timed({"__key__": "a", "x": b"abc"}))
            yield from batch

    timers = StageTimers(0)
    timed = _own.TimedFinish(finish, timers)
    for _ in _own.TimedDataset(samples(), timed):
        clock[0] += 7  # what a consumer takes
    assert timers.totals()["storage"] == {"wall_s": 4.0, "cpu_s": 0.0, "blocked_s": 4.0, "bytes": 12, "count": 4}


def test_what_decode_and_transform_are_given(uris, monkeypatch):
    """Functions of the user get the fields alone, then what they made."""
    module = type(os)("bench_functions")
    module.decode = lambda fields: (sorted(fields), len(fields["png"]))
    module.transform = lambda decoded: torch.tensor(decoded[1]) if decoded[0] == ["json", "png"] else None
    monkeypatch.setitem(__import__("sys").modules, "bench_functions", module)
    workload = Workload(batch_size=45, decode="bench_functions:decode", transform="bench_functions:transform")
    (batch,) = read(open_side(Layout(uris["files"], "files", "torch"), workload, Settings(0)), 0)
    assert sorted(batch.tolist()) == sorted(len(fields["png"]) for fields in SAMPLES.values())


@pytest.mark.parametrize("name", ["absent.mod:f", "os:absent", "os.path", "os:sep"])
def test_a_function_that_is_not_there_is_a_users_mistake(uris, name, one_sentence):
    with pytest.raises(UsageError) as caught:
        open_side(Layout(uris["files"], "files", "torch"), Workload(transform=name), Settings(0))
    assert "--transform" in one_sentence(caught.value)


# Files and tars as they may be.


def test_files_are_grouped_as_the_recipe_says(tmp_path, build):
    """By the last dot, which names alone would not settle."""
    files = {"a.x.png": SAMPLES["00/0000"]["png"], "a.x.json": b"{}", "a.y.png": SAMPLES["01/0001"]["png"], "a.y.json": b"{}"}
    source = tmp_path / "source"
    source.mkdir()
    for name, data in files.items():
        (source / name).write_bytes(data)
    build(source, tmp_path / "wds", group="last-dot")
    layouts = layouts_of([str(source), str(tmp_path / "wds")])
    workload = settle_workload(layouts, Workload(batch_size=9, image_side=4))
    found = [read(open_side(layout, workload, Settings(0)), 0)[0] for layout in layouts]
    assert [len(batch) for batch in found] == [2, 2]


def test_few_shards_and_buffers_are_told(uris):
    side = open_side(Layout(uris["wds"], "wds", "webdataset"), Workload(decode="none", shuffle_buffer=50), Settings(num_workers=8))
    assert side.limits == [
        "7 shards can keep at most 7 of 8 workers busy",
        "shuffles by shards and a buffer, which is less random than random access; holds 400 samples in memory",
    ]
    assert side.order == "shards shuffled, a buffer of 50 samples"


def test_a_path_that_webdataset_would_cut_is_refused(tmp_path):
    as_tars(tmp_path / "a#b", SAMPLES)
    with pytest.raises(UsageError, match="expected a path without #"):
        open_side(Layout(str(tmp_path / "a#b"), "wds", "webdataset"), Workload(decode="none"), Settings(0))


# MDS that has to be unpacked or copied.


def test_compressed_shards_are_unpacked_elsewhere_and_nothing_stays(tmp_path, temporary):
    uri = as_mds(tmp_path / "zstd", SAMPLES, ENCODINGS, compression="zstd")
    before, blocks = {path.name: path.stat().st_mtime_ns for path in Path(uri).iterdir()}, shm_names()
    for reader in ("streaming", "shardtools"):
        side = open_side(Layout(uri, "mds", reader), Workload(batch_size=8, image_side=6), Settings(2))
        found = read(side, 2)
        assert sorted(image.numpy().tobytes() for batch in found for image in batch) == resized(SAMPLES, 6)
    assert {path.name: path.stat().st_mtime_ns for path in Path(uri).iterdir()} == before
    assert os.listdir(temporary) == [] and shm_names() == blocks


def test_options_that_streaming_refuses_are_a_users_mistake(uris, temporary):
    with pytest.raises(UsageError, match="expected options that StreamingDataset takes"):
        open_side(Layout(uris["mds"], "mds", "streaming"), Workload(decode="none", cache_limit="1kb"), Settings(0))
    assert os.listdir(temporary) == []


# JSON lines.


@pytest.fixture(scope="module")
def texts():
    return [f"{i} {'the cat sat on the log ' * (i % 9)}Häuser" for i in range(90)]


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\n", b"a\n\nbb\nccc", b"\n\na\n", b"aaaa\nbbbb\ncccc\n"])
def test_windows_share_lines_out(text):
    """Every line is in the window in which it begins, whatever the windows."""
    rows = text.splitlines(True)
    expected = [(sum(map(len, rows[:i])), row) for i, row in enumerate(rows)]
    for size in range(1, len(text) + 2):
        found = [
            line for begin in range(0, len(text), size) for line in lines_between(io.BytesIO(text), begin, min(begin + size, len(text)))
        ]
        assert found == expected, size
        pieces = list(lines_of_pieces(text[i : i + size] for i in range(0, len(text), size)))
        assert pieces == [(at, row.removesuffix(b"\n")) for at, row in expected], size


@pytest.mark.parametrize("reader", ["torch", "shardtools"])
@pytest.mark.parametrize("decode", ["none", "text"])
def test_records_come_once_each(tmp_path, texts, reader, decode):
    path = tmp_path / "docs.jsonl"
    uri = as_lines(path, ({"text": text} for text in texts))
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines[:40]) + b"\n\n  \n" + b"\n".join(lines[40:]))
    side = open_side(Layout(uri, "jsonl", reader), Workload(batch_size=90, decode=decode), Settings(0))
    ((data, lengths),) = read(side, 0)
    ends = np.cumsum(lengths.numpy())
    found = sorted(bytes(data[begin:end].numpy()) for begin, end in zip([0, *ends[:-1]], ends, strict=True))
    assert found == sorted(lines if decode == "none" else [text.encode() for text in texts])


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("num_workers", [0, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_tokens_on_the_fly_are_those_of_the_library(tmp_path, texts, suffix, num_workers):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in texts])
    packed = pack_tokens(uri, tmp_path / "rows", tokenizer, "mds", {"seq_len": "24"})
    if suffix:
        (tmp_path / "docs.jsonl.gz").write_bytes(gzip.compress((tmp_path / "docs.jsonl").read_bytes()))
        uri += suffix
    layouts = layouts_of([uri, packed], ("torch", "shardtools"), tokenizes=True)
    workload = settle_workload(layouts, Workload(batch_size=4, tokenizer=tokenizer))
    sides = [open_side(layout, workload, Settings(num_workers)) for layout in layouts]
    on_the_fly, rows = [[row.tolist() for batch in read(side, num_workers) for row in batch] for side in sides]
    documents = ids_of(tokenizer, texts)
    assert {len(row) for row in on_the_fly} == {len(row) for row in rows} == {24}
    assert sides[0].num_samples is None and sides[1].num_samples == len(rows)
    # One window holds all of it, so that one worker has the stream, padded at its end.
    stream = [token for tokens in documents for token in tokens]
    found = [token for row in on_the_fly for token in row]
    assert found == stream + [0] * (-len(stream) % 24)
    assert Counter(token for row in rows for token in row if token) == Counter(token for token in stream if token)


@pytest.mark.parametrize(("format_", "reader"), [("wds", "webdataset"), ("mds", "streaming")])
def test_rows_of_documents_are_padded_to_the_longest(tmp_path, texts, format_, reader):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in texts])
    packed = pack_tokens(uri, tmp_path / "rows", tokenizer, format_, {})
    documents = ids_of(tokenizer, texts)
    workload = Workload(batch_size=90, tokenizer=tokenizer)
    layouts = [Layout(uri, "jsonl", "torch"), Layout(packed, format_, reader)]
    workload = settle_workload(layouts, workload)
    width = max(map(len, documents))
    for layout in layouts:
        (batch,) = read(open_side(layout, workload, Settings(0)), 0)
        assert sorted(batch.tolist()) == sorted(tokens + [0] * (width - len(tokens)) for tokens in documents)


def test_timers_tell_reading_parsing_and_tokenizing_apart(tmp_path, texts):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in texts])
    timers = StageTimers(0)
    workload = Workload(batch_size=4, tokenizer=tokenizer, seq_len=16)
    read(open_side(Layout(uri, "jsonl", "torch"), workload, Settings(0), timers), 0)
    totals = timers.totals()
    assert totals["storage"]["bytes"] == os.path.getsize(uri)
    assert all(totals[stage]["wall_s"] > 0 for stage in STAGES)


def test_compressed_lines_have_no_random_access(tmp_path):
    (tmp_path / "docs.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    with pytest.raises(UsageError, match="--reader shardtools"):
        open_side(Layout(str(tmp_path / "docs.jsonl.gz"), "jsonl", "torch"), Workload(), Settings(0))


def test_a_tar_with_its_own_metadata_is_read(tmp_path):
    """webdataset passes over members of its own; what it adds to samples is no field."""
    uri = as_tars(tmp_path / "wds", {"a": SAMPLES["00/0000"]}, per_shard=1)
    with tarfile.open(f"{uri}/train-000000.tar", "a") as archive:
        archive.addfile(tarfile.TarInfo("__meta__"), io.BytesIO(b""))
    ((data, _),) = read(open_side(Layout(uri, "wds", "webdataset"), Workload(decode="none"), Settings(0)), 0)
    assert bytes(data.numpy()) == SAMPLES["00/0000"]["json"] + SAMPLES["00/0000"]["png"]
