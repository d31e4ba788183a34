"""Stops a shard format that loses, doubles, moves or reorders samples, or passes its size limit. Holds for every format there is."""

import array
import dataclasses
import hashlib
import json
import random
from itertools import pairwise

import pytest

from shardtools import plugins
from shardtools.errors import BadSampleError, DamagedShardError, ShardtoolsError
from shardtools.formats import ShardFormat
from shardtools.manifest import OFFSETS_NAME, REJECTS_NAME, Manifest

COUNT = 60
ENCODINGS = {"bin": "bytes", "txt": "str"}


@pytest.fixture(params=plugins.names("formats"))
def format_(request) -> ShardFormat:
    return plugins.load("formats", request.param)()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "src"
    folder.mkdir()
    return folder


def table(count: int = COUNT, largest: int = 900) -> tuple[list[bytes], dict[str, list[bytes]]]:
    numbers = random.Random(11)
    columns = {
        "bin": [numbers.randbytes(numbers.randint(0, largest)) for _ in range(count)],
        "txt": [("é" * numbers.randint(0, 20)).encode() for _ in range(count)],
    }
    return [b"dir=20%d/%05d" % (i % 3, i) for i in range(count)], columns


def stored(format_: ShardFormat, data: bytes) -> list[tuple[str, bytes, bytes]]:
    return [(s.key, bytes(s.values["bin"]), bytes(s.values["txt"])) for s in format_.stored_samples(memoryview(data))]


def expected(keys, columns) -> list[tuple[str, bytes, bytes]]:
    return [(key.decode(), columns["bin"][i], columns["txt"][i]) for i, key in enumerate(keys)]


def read_all(format_, folder) -> list[list[tuple[str, bytes, bytes]]]:
    manifest = Manifest.parse((folder / "shardtools.manifest").read_bytes())
    return [stored(format_, (folder / shard.name).read_bytes()) for shard in manifest.shards]


def test_the_name_is_the_registration(format_):
    assert plugins.name_of(format_) in plugins.names("formats")
    assert dataclasses.is_dataclass(format_) and type(format_).__dataclass_params__.frozen


def test_batches_come_back_in_order(format_, write_shard, rows):
    keys, columns = table()
    shard = write_shard(format_, rows(keys, columns, ENCODINGS))
    assert shard.rejects == [] and shard.keys == keys
    assert stored(format_, shard.data) == expected(keys, columns)
    assert shard.facts.num_samples == COUNT
    assert shard.facts.num_bytes == len(shard.data)


def test_the_digest_is_that_of_the_bytes(format_, write_shard, rows):
    shard = write_shard(format_, rows(*table(), ENCODINGS))
    assert shard.facts.sha256 == hashlib.sha256(shard.data).hexdigest()


def test_offsets_are_where_samples_begin(format_, write_shard, rows):
    shard = write_shard(format_, rows(*table(), ENCODINGS))
    begins = [sample.offset for sample in format_.stored_samples(memoryview(shard.data))]
    assert list(shard.facts.offsets[:-1]) == begins
    assert shard.facts.offsets[-1] <= len(shard.data)
    assert sorted(set(begins)) == begins


@pytest.mark.parametrize("limit", [10240, 20480, 65536])
def test_no_shard_is_above_the_limit_and_none_could_take_the_next_sample(format_, build, rows, source, tmp_path, limit, write_shard):
    keys, columns = table(200)
    build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS), shard_bytes=limit)
    shards = read_all(format_, tmp_path / "out")
    assert [sample for shard in shards for sample in shard] == expected(keys, columns)
    assert all(shards) and len(shards) > 1
    for path in (tmp_path / "out").glob(f"*{format_.suffix}"):
        assert path.stat().st_size <= limit
    begin = 0
    for shard in shards[:-1]:
        end = begin + len(shard) + 1
        one_more = rows(keys[begin:end], {name: values[begin:end] for name, values in columns.items()}, ENCODINGS)
        assert len(write_shard(format_, one_more, limit).data) > limit
        begin = end - 1


@pytest.mark.parametrize("count", [26, 27, 28, 29])
def test_a_shard_may_be_exactly_as_large_as_the_limit(format_, build, rows, source, tmp_path, write_shard, count):
    given = rows(*table(count), ENCODINGS)
    # Some headers hold the limit: it has five digits here and below, so that it does not change the length.
    exact = len(write_shard(format_, given, 50_000).data)
    assert 10_240 < exact < 100_000
    build(source, tmp_path / "exact", format_, source=given, shard_bytes=exact)
    build(source, tmp_path / "less", format_, source=given, shard_bytes=exact - 1)
    assert [len(shard) for shard in read_all(format_, tmp_path / "exact")] == [count]
    assert len(read_all(format_, tmp_path / "less")) == 2


@pytest.mark.parametrize("where", [0, 3, 9])
def test_a_sample_above_the_limit_has_a_shard_of_its_own_and_a_warning(format_, build, rows, source, tmp_path, where):
    keys, columns = table(10)
    columns["bin"][where] = b"x" * 50_000
    result = build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS), shard_bytes=20480)
    shards = read_all(format_, tmp_path / "out")
    assert [expected(keys, columns)[where]] in shards
    assert all(shards)
    assert [sample for shard in shards for sample in shard] == expected(keys, columns)
    (warning,) = result.warnings
    assert keys[where].decode() in warning and "1 sample" in warning


def test_only_samples_above_the_limit_give_one_shard_each(format_, build, rows, source, tmp_path):
    keys, columns = table(4)
    columns["bin"] = [b"x" * 30_000] * 4
    build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS), shard_bytes=10240)
    assert [len(shard) for shard in read_all(format_, tmp_path / "out")] == [1, 1, 1, 1]


def test_a_sample_limit_is_exact(format_, build, rows, source, tmp_path):
    keys, columns = table(25)
    build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS), shard_samples=8)
    assert [len(shard) for shard in read_all(format_, tmp_path / "out")] == [8, 8, 8, 1]


def test_a_multiple_of_the_sample_limit_leaves_no_empty_shard(format_, build, rows, source, tmp_path):
    keys, columns = table(24)
    build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS), shard_samples=8)
    assert [len(shard) for shard in read_all(format_, tmp_path / "out")] == [8, 8, 8]


def test_shards_are_numbered_through_all_partitions(format_, build, rows, source, tmp_path):
    keys, columns = table(30)
    # The second partition is empty: everything in it is bad.
    keys[10:15] = [b"bad/%d" % i for i in range(5)]
    build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS, [10, 15]), shard_samples=4, max_bad="5")
    shards = read_all(format_, tmp_path / "out")
    assert [len(shard) for shard in shards] == [4, 4, 2, 4, 4, 4, 3]
    manifest = Manifest.parse((tmp_path / "out" / "shardtools.manifest").read_bytes())
    assert [shard.name for shard in manifest.shards] == [format_.shard_name(n, 1) for n in range(7)]
    assert sorted(path.name for path in (tmp_path / "out").glob(f"*{format_.suffix}")) == [shard.name for shard in manifest.shards]


def test_the_ledger_closes(format_, build, rows, source, tmp_path):
    keys, columns = table(20)
    keys[3], keys[11] = b"bad/one", b"bad/two"
    result = build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS, [7]), max_bad="2")
    ledger = result.manifest.ledger
    assert (ledger.num_read, ledger.num_written, ledger.num_rejected, ledger.num_filtered) == (20, 18, 2, 0)
    assert ledger.rejects == {"bad-row": 2}
    assert sum(len(shard) for shard in read_all(format_, tmp_path / "out")) == 18
    lines = (tmp_path / "out" / REJECTS_NAME).read_text().splitlines()
    assert len(lines) == 2 and "row 3" in lines[0] and "row 11" in lines[1]


def test_a_bad_sample_ends_the_run_by_default(format_, build, rows, source, tmp_path, one_sentence):
    keys, columns = table(20)
    keys[3] = b"bad/one"
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS))
    assert "row 3" in one_sentence(caught.value) and "--max-bad" in str(caught.value)
    assert not (tmp_path / "out" / "shardtools.manifest").exists()
    assert not list((tmp_path / "out").glob(f"*{format_.suffix}"))


def test_a_dataset_of_nothing_is_not_made(format_, build, rows, source, tmp_path, one_sentence):
    with pytest.raises(ShardtoolsError) as caught:
        build(source, tmp_path / "out", format_, source=rows([b"bad/1"], {"bin": [b""], "txt": [b""]}, ENCODINGS), max_bad="9")
    assert "at least one sample" in one_sentence(caught.value)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name != ".shardtools"]


def test_the_published_offsets_are_those_of_all_shards(format_, build, rows, source, tmp_path):
    keys, columns = table(30)
    build(source, tmp_path / "out", format_, source=rows(keys, columns, ENCODINGS, [9]), shard_samples=8)
    manifest = Manifest.parse((tmp_path / "out" / "shardtools.manifest").read_bytes())
    offsets = array.array("Q", (tmp_path / "out" / OFFSETS_NAME).read_bytes())
    for shard in manifest.shards:
        own, offsets = offsets[: shard.num_samples + 1], offsets[shard.num_samples + 1 :]
        data = (tmp_path / "out" / shard.name).read_bytes()
        assert list(own[:-1]) == [sample.offset for sample in format_.stored_samples(memoryview(data))]
    assert len(offsets) == 0


def test_the_planned_cost_is_what_a_sample_takes(format_, write_shard, rows):
    keys, columns = table(12)
    source = rows(keys, columns, ENCODINGS)
    encoder = format_.encoder(source.fields, None)
    shard = write_shard(format_, source)
    planned = [
        encoder.planned_cost(len(key), ["bin", "txt"], [len(columns["bin"][i]), len(columns["txt"][i])]) for i, key in enumerate(keys)
    ]
    begins = list(shard.facts.offsets)
    taken = [end - begin for begin, end in pairwise(begins)]
    overhead = {cost - length for cost, length in zip(planned, taken, strict=True)}
    # Beside its own bytes a sample may lengthen a table, by the same for each.
    assert len(overhead) == 1 and overhead.pop() in (0, 4)


def test_a_shard_that_is_cut_is_refused(format_, write_shard, rows):
    shard = write_shard(format_, rows(*table(5), ENCODINGS))
    last = shard.facts.offsets[-1]
    for cut in {0, 1, 3, 7, 100, 511, 513, last // 2, last - 1, last - 4} | set(shard.facts.offsets[:-1]):
        with pytest.raises(DamagedShardError):
            list(format_.stored_samples(memoryview(shard.data[:cut])))


def test_a_shard_with_something_after_it_is_refused(format_, write_shard, rows):
    shard = write_shard(format_, rows(*table(5), ENCODINGS))
    for extra in (b"x", shard.data, b"x" * 512):
        with pytest.raises(DamagedShardError):
            list(format_.stored_samples(memoryview(shard.data + extra)))


def test_every_flip_in_what_frames_the_first_sample_is_refused_or_changes_no_count(format_, write_shard, rows):
    """A flip may hide in a payload, where only a digest finds it; it never ends in another error or in fewer samples."""
    keys, columns = table(4, 40)
    shard = write_shard(format_, rows(keys, columns, ENCODINGS))
    num_refused = 0
    for at in range(shard.facts.offsets[-1]):
        flipped = bytearray(shard.data)
        flipped[at] ^= 1 << at % 8
        try:
            samples = list(format_.stored_samples(memoryview(bytes(flipped))))
        except DamagedShardError:
            num_refused += 1
        else:
            assert len(samples) == 4, at
    assert num_refused > 20


def test_aborting_leaves_the_output_aborted(format_, rows, memory_object):
    source = rows(*table(5), ENCODINGS)
    output = memory_object()
    shard = format_.shard_file(source.fields, None, output)
    shard.abort()
    assert output.is_aborted and not output.is_finished


def test_options_are_plain_data(format_):
    assert json.loads(json.dumps(plugins.options(format_)))["name"] == plugins.name_of(format_)
