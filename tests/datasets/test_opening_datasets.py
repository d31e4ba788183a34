"""Datasets open as what they are and give every sample once; stops a reader that guesses, or follows names out of the folder."""

import gzip
import json
import os
import pickle
import shutil
import warnings
from contextlib import suppress

import pytest

from shardtools.datasets import open_dataset, survey_dataset
from shardtools.errors import DamagedShardError, StorageError, UsageError
from shardtools.formats.mds import Mds

KEYS = [f"d/k{i:02d}" for i in range(20)]


@pytest.fixture
def published(build, rows, tmp_path):
    """The same 20 samples in a format, in shards of seven."""

    def make(shard_format):
        (tmp_path / "src").mkdir(exist_ok=True)
        columns = {"cls": [b"%d" % i for i in range(20)], "json": [b'{"i":%d}' % i for i in range(20)]}
        source = rows([key.encode() for key in KEYS], columns, {"cls": "int", "json": "json"})
        build(tmp_path / "src", tmp_path / "out", shard_format, source=source, shard_samples=7)
        return tmp_path / "out"

    return make


FORMATS = {"wds": "wds", "mds": "mds", "zstd": Mds(compression="zstd")}


@pytest.mark.parametrize("shard_format", FORMATS.values(), ids=FORMATS)
def test_a_published_dataset(published, shard_format):
    dataset = open_dataset(str(published(shard_format)))
    assert dataset.manifest is not None
    assert [shard.num_samples for shard in dataset.shards] == [7, 7, 6]
    assert dataset.num_samples == 20
    found = [(sample.key, dataset.decode(shard, "cls", sample.values["cls"])) for shard, sample in dataset.all_samples()]
    assert found == list(zip(KEYS, range(20), strict=True))


@pytest.mark.parametrize("shard_format", FORMATS.values(), ids=FORMATS)
def test_random_access_by_position_and_by_key(published, shard_format):
    dataset = open_dataset(str(published(shard_format)))
    for position in (0, 6, 7, 19):
        shard, sample = dataset.sample_at(position)
        assert sample.key == KEYS[position]
        assert dataset.decode(shard, "json", sample.values["json"]) == {"i": position}
        found = dataset.find(KEYS[position])
        assert found is not None
        assert found[1].offset == sample.offset
    assert dataset.find("d/k20") is None
    for position in (-1, 20):
        with pytest.raises(UsageError):
            dataset.sample_at(position)


def test_a_position_opens_no_shard_before_its_own(published):
    folder = published("wds")
    (folder / "train-000000.tar").unlink()
    assert open_dataset(str(folder)).sample_at(8)[1].key == "d/k08"
    with pytest.raises(StorageError):
        open_dataset(str(folder)).sample_at(0)


@pytest.mark.parametrize("shard_format", FORMATS.values(), ids=FORMATS)
def test_without_its_manifest_it_is_a_foreign_dataset_of_the_same_samples(published, shard_format):
    folder = published(shard_format)
    (folder / "shardtools.manifest").unlink()
    dataset = open_dataset(str(folder))
    assert dataset.manifest is None
    assert [sample.key for _, sample in dataset.all_samples()] == KEYS
    shard, sample = dataset.sample_at(3)
    assert dataset.decode(shard, "cls", sample.values["cls"]) == 3


def test_keys_of_a_dataset_that_stores_none(build, rows, tmp_path):
    (tmp_path / "src").mkdir()
    source = rows([b"a", b"b", b"c"], {"x": [b"1", b"2", b"3"]}, {"x": "bytes"})
    build(tmp_path / "src", tmp_path / "out", Mds(key_column=None), source=source, shard_samples=2)
    expected = ["00000/00000000", "00000/00000001", "00001/00000000"]
    assert [sample.key for _, sample in open_dataset(str(tmp_path / "out")).all_samples()] == expected
    (tmp_path / "out/shardtools.manifest").unlink()
    assert [sample.key for _, sample in open_dataset(str(tmp_path / "out")).all_samples()] == expected


def test_a_key_column_of_numbers_is_no_key(build, rows, tmp_path):
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "out", Mds(key_column=None), source=rows([b"a"], {"key": [7]}, {"key": "int"}))
    (tmp_path / "out/shardtools.manifest").unlink()
    assert [sample.key for _, sample in open_dataset(str(tmp_path / "out")).all_samples()] == ["00000/00000000"]


def test_nested_and_compressed_tars_are_shards_in_the_order_of_their_names(tmp_path, ustar):
    for name, key in (("b.tar", "b"), ("a/z.tar", "z"), ("c.tar.gz", "c"), ("d.tgz", "d"), (".hidden/x.tar", "x"), ("a/.y.tar", "y")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        data = ustar([(f"{key}.txt", b"x")])
        (tmp_path / name).write_bytes(data if name.endswith(".tar") else gzip.compress(data))
    dataset = open_dataset(str(tmp_path))
    assert [shard.name for shard in dataset.shards] == ["a/z.tar", "b.tar", "c.tar.gz", "d.tgz"]
    assert [sample.key for _, sample in dataset.all_samples()] == ["z", "b", "c", "d"]


def test_tars_beside_another_programs_index_json_are_wds(tmp_path, ustar):
    (tmp_path / "a.tar").write_bytes(ustar([("a.txt", b"x")]))
    (tmp_path / "index.json").write_text('{"pages": []}')
    assert open_dataset(str(tmp_path)).format_name == "wds"


@pytest.mark.parametrize(
    ("field", "data", "value"),
    [
        ("json", b'{"a": 1}', {"a": 1}),
        ("seg.json", b"[1]", [1]),
        ("txt", "ü".encode(), "ü"),
        ("cls", b"007\n", 7),
        ("jpg", b"\xff\xd8\xff", b"\xff\xd8\xff"),
        ("pkl", b"cos\nsystem\n", b"cos\nsystem\n"),
    ],
)
def test_members_of_foreign_tars_decode_by_their_extension(tmp_path, ustar, field, data, value):
    (tmp_path / "a.tar").write_bytes(ustar([(f"a.{field}", data)]))
    dataset = open_dataset(str(tmp_path))
    shard, sample = dataset.sample_at(0)
    assert dataset.decode(shard, field, sample.values[field]) == value


@pytest.mark.parametrize(("field", "data"), [("json", b"{"), ("json", b"[" * 10**5), ("txt", b"\xff"), ("cls", b"1.5x")])
def test_a_damaged_value_is_a_value_error(tmp_path, ustar, field, data):
    (tmp_path / "a.tar").write_bytes(ustar([(f"a.{field}", data)]))
    dataset = open_dataset(str(tmp_path))
    shard, sample = dataset.sample_at(0)
    with pytest.raises(ValueError, match="expected"):
        dataset.decode(shard, field, sample.values[field])


# What is no dataset.


def test_what_is_no_dataset_says_what_was_looked_for(tmp_path, one_sentence):
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(UsageError) as caught:
        open_dataset(str(tmp_path))
    assert all(word in one_sentence(caught.value) for word in ("shardtools.manifest", "index.json", ".tar"))
    for path in (tmp_path / "none", tmp_path / "x.txt"):
        with pytest.raises(UsageError) as caught:
            open_dataset(str(path))
        assert str(path) in one_sentence(caught.value)


def test_an_unfinished_build_says_so(published, one_sentence):
    folder = published("mds")
    (folder / ".shardtools/build").mkdir()
    (folder / ".shardtools/plan").rename(folder / ".shardtools/build/plan")
    for path in ("shardtools.manifest", "index.json"):
        (folder / path).unlink()
    with pytest.raises(UsageError) as caught:
        open_dataset(str(folder))
    assert "unfinished build" in one_sentence(caught.value)


def test_a_damaged_manifest_is_refused(published, one_sentence):
    folder = published("wds")
    text = (folder / "shardtools.manifest").read_text()
    (folder / "shardtools.manifest").write_text(text.replace('"samples": 7', '"samples": 8'))
    with pytest.raises(UsageError) as caught:
        open_dataset(str(folder))
    assert "SHA-256" in one_sentence(caught.value)
    assert [problem.kind for problem in survey_dataset(str(folder)).problems] == ["manifest-damaged"]


@pytest.mark.parametrize("name", ["../outside.mds", "/etc/passwd", "a/../../x", "", "a//b", "./a", "a\\b", "a\0b", 7, None])
def test_an_index_that_names_files_outside_is_refused(published, name, one_sentence):
    folder = published("mds")
    (folder / "shardtools.manifest").unlink()
    content = json.loads((folder / "index.json").read_text())
    content["shards"][0]["raw_data"]["basename"] = name
    (folder / "index.json").write_text(json.dumps(content))
    with pytest.raises(UsageError) as caught:
        open_dataset(str(folder))
    assert "basename" in one_sentence(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"shards": {}}',
        b'{"shards": [7], "version": 2}',
        b'{"shards": [], "version": 1}',
        b"[" * 10**5,
        b'{"shards": [{"format": "csv"}]}',
    ],
)
def test_an_index_of_any_content_is_refused_in_one_sentence(tmp_path, text, one_sentence):
    (tmp_path / "index.json").write_bytes(text)
    with pytest.raises(UsageError) as caught:
        open_dataset(str(tmp_path))
    one_sentence(caught.value)


@pytest.mark.parametrize(
    "key", ["column_names", "column_encodings", "column_sizes", "compression", "hashes", "samples", "raw_data", "zip_data", "version"]
)
@pytest.mark.parametrize("value", [None, 7, -1, "x", [], [7], {}, True])
def test_an_index_entry_of_any_type_is_refused_or_read(published, key, value):
    folder = published("mds")
    (folder / "shardtools.manifest").unlink()
    content = json.loads((folder / "index.json").read_text())
    content["shards"][0][key] = value
    (folder / "index.json").write_text(json.dumps(content))
    with suppress(UsageError):
        list(open_dataset(str(folder)).all_samples())


def test_a_fifo_is_no_shard(tmp_path):
    """Opening one would wait for ever."""
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(StorageError):
        list(open_dataset(str(tmp_path)).all_samples())


def test_a_symbolic_link_to_a_shard_is_followed(tmp_path, ustar):
    """Download caches keep files that way."""
    (tmp_path / "store").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "store/blob").write_bytes(ustar([("a.txt", b"x")]))
    (tmp_path / "data/a.tar").symlink_to("../store/blob")
    assert [sample.key for _, sample in open_dataset(str(tmp_path / "data")).all_samples()] == ["a"]


def test_a_damaged_shard_raises_where(published):
    folder = published("wds")
    with open(folder / "train-000001.tar", "r+b") as file:
        file.seek(1024)
        file.write(b"?")
    dataset = open_dataset(str(folder))
    with pytest.raises(DamagedShardError) as caught:
        list(dataset.samples(dataset.shards[1]))
    assert caught.value.offset == 1024
    assert "train-000001.tar" in str(caught.value)


def test_a_dataset_can_be_sent_to_another_process(published):
    dataset = open_dataset(str(published("mds")))
    again = pickle.loads(pickle.dumps(dataset))
    assert again == dataset
    assert [sample.key for _, sample in again.all_samples()] == KEYS


# MDS of the reference writer.


def write(streaming, folder, count, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with streaming.MDSWriter(out=str(folder), columns={"x": "int", "key": "str"}, size_limit=400, **options) as sink:
            for i in range(count):
                sink.write({"x": i, "key": f"{os.path.basename(folder)}-{i}"})


@pytest.mark.train
def test_folders_of_the_reference_writer_nested_by_its_merge(streaming, tmp_path):
    for part in ("p0", "p1"):
        write(streaming, tmp_path / part, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        streaming.base.util.merge_index(str(tmp_path))
    dataset = open_dataset(str(tmp_path))
    assert len({shard.name for shard in dataset.shards}) == len(dataset.shards) > 2
    found = [(sample.key, dataset.decode(shard, "x", sample.values["x"])) for shard, sample in dataset.all_samples()]
    assert found == [(f"{part}-{i}", i) for part in ("p0", "p1") for i in range(20)]


@pytest.mark.train
def test_the_raw_shard_is_read_where_both_forms_are_there(streaming, tmp_path):
    write(streaming, tmp_path / "zip", 20, compression="zstd")
    write(streaming, tmp_path / "raw", 20)
    dataset = open_dataset(str(tmp_path / "zip"))
    assert all(shard.compression == "zstd" for shard in dataset.shards)
    assert dataset.num_samples == len(list(dataset.all_samples())) == 20
    raw = list(open_dataset(str(tmp_path / "zip")).samples(dataset.shards[0]))
    unpacked = dataset.unpacked(dataset.shards[0], dataset.stored(dataset.shards[0]))
    (tmp_path / "zip/shard.00000.mds").write_bytes(unpacked)
    both = open_dataset(str(tmp_path / "zip"))
    assert (both.shards[0].name, both.shards[0].compression) == ("shard.00000.mds", None)
    assert list(both.samples(both.shards[0])) == raw


@pytest.mark.train
@pytest.mark.parametrize("compression", ["gz", "bz2"])
def test_other_compressions_are_refused_by_name(streaming, tmp_path, compression, one_sentence):
    write(streaming, tmp_path / "f", 3, compression=compression)
    dataset = open_dataset(str(tmp_path / "f"))
    assert dataset.num_samples == 3
    with pytest.raises(UsageError) as caught:
        list(dataset.all_samples())
    assert f"{compression!r}, which is not supported" in one_sentence(caught.value)


def test_nothing_is_left_in_the_temporary_folder(published, tmp_path, monkeypatch):
    import tempfile

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    dataset = open_dataset(str(published(Mds(compression="zstd"))))
    assert len(list(dataset.all_samples())) == 20
    assert os.listdir(tmp_path / "tmp") == []
    shutil.rmtree(tmp_path / "tmp")
    with pytest.raises(FileNotFoundError):
        list(dataset.all_samples())
