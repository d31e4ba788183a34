"""Shards become the files they were made of, below one folder; stops an extract that loses, overwrites or escapes."""

import json
import os
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from shardtools.datasets import open_dataset
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.explore.extract import Extracted, ExtractOptions, extract
from shardtools.formats.mds import Mds


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("shard_format", ["wds", "mds", Mds(compression="zstd")], ids=["wds", "mds", "zstd"])
def test_files_come_back_byte_for_byte(build, image_pairs, tmp_path, shard_format):
    source = image_pairs(31)
    build(source, tmp_path / "data", shard_format, shard_samples=7)
    done = extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out"))
    assert files(tmp_path / "out") == files(source)
    assert done == Extracted(31, 62, 0, sum(map(len, files(source).values())))


def test_a_second_run_writes_nothing(build, image_pairs, tmp_path):
    build(image_pairs(5), tmp_path / "data")
    dataset = open_dataset(str(tmp_path / "data"))
    extract(dataset, str(tmp_path / "out"))
    (tmp_path / "out/cats/0000.jpg").unlink()
    assert extract(dataset, str(tmp_path / "out")).as_json()["unchanged"] == 9
    assert (tmp_path / "out/cats/0000.jpg").exists()


def test_another_file_in_the_way_is_not_touched(build, image_pairs, tmp_path, one_sentence):
    build(image_pairs(5), tmp_path / "data")
    for content in (b"mine", b"x" * os.path.getsize(tmp_path / "pairs/cats/0000.json")):
        (tmp_path / "out/cats").mkdir(parents=True, exist_ok=True)
        (tmp_path / "out/cats/0000.json").write_bytes(content)
        with pytest.raises(ShardtoolsError) as caught:
            extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out"))
        assert "0000.json" in one_sentence(caught.value)
        assert (tmp_path / "out/cats/0000.json").read_bytes() == content


def test_only_the_asked_for_keys(build, image_pairs, tmp_path, one_sentence):
    build(image_pairs(9), tmp_path / "data")
    dataset = open_dataset(str(tmp_path / "data"))
    assert extract(dataset, str(tmp_path / "out"), ExtractOptions(keys=["cats/0003"])).num_files == 2
    assert sorted(files(tmp_path / "out")) == ["cats/0003.jpg", "cats/0003.json"]
    with pytest.raises(UsageError) as caught:
        extract(dataset, str(tmp_path / "more"), ExtractOptions(keys=["cats/0000", "cats/0004"]))
    assert "'cats/0004'" in one_sentence(caught.value)
    assert "near it are cats/000" in str(caught.value)
    assert sorted(files(tmp_path / "more")) == ["cats/0000.jpg", "cats/0000.json"]


def test_columns_become_files_by_their_encoding(build, rows, tmp_path):
    (tmp_path / "src").mkdir()
    columns = {
        "array": (np.arange(6, dtype=np.int16).reshape(2, 3), "ndarray"),
        "blob": (b"\0\1", "bytes"),
        "caption": ("ein Bild", "str"),
        "cls": (7, "int"),
        "html": ("<p>", "str"),
        "image": (b"\xff\xd8\xff!", "jpeg"),
        "jpg": (b"\xff\xd8\xff?", "jpeg"),
        "meta": ({"a": 1}, "json"),
        "npy": ([1, 2], "ndarray:uint8:2"),
        "score": (0.25, "float32"),
        "a/b": (b"x", "bytes"),
    }
    source = rows([b"d/k"], {n: [v] for n, (v, _) in columns.items()}, {n: e for n, (_, e) in columns.items()})
    build(tmp_path / "src", tmp_path / "data", "mds", source=source)
    extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out"))
    found = files(tmp_path / "out")
    assert np.load(tmp_path / "out/d/k.array.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.load(tmp_path / "out/d/k.array.npy").dtype == np.int16
    assert np.load(tmp_path / "out/d/k.npy").tolist() == [1, 2]
    del found["d/k.array.npy"], found["d/k.npy"]
    assert found == {
        "d/k.blob": b"\0\1",
        "d/k.caption.txt": b"ein Bild",
        "d/k.cls": b"7",
        "d/k.html": b"<p>",
        "d/k.image.jpg": b"\xff\xd8\xff!",
        "d/k.jpg": b"\xff\xd8\xff?",
        "d/k.meta.json": b'{"a": 1}',
        "d/k.score": b"0.25",
        "d/k.a=2Fb": b"x",
    }


# Hostile shards.


@pytest.fixture
def foreign(tmp_path, ustar):
    def make(members):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data/a.tar").write_bytes(ustar(members))
        return open_dataset(str(tmp_path / "data"))

    return make


@pytest.mark.parametrize("name", ["../x.txt", "/tmp/shardtools-x.txt", "a/../../x.txt", "a//x.txt", "..", "a/.."])
def test_a_name_that_leads_elsewhere_is_refused(foreign, tmp_path, name, one_sentence):
    with pytest.raises(ShardtoolsError) as caught:
        extract(foreign([(name, b"x")]), str(tmp_path / "out"))
    one_sentence(caught.value)
    assert not (tmp_path / "x.txt").exists()
    assert files(tmp_path / "out") == {}


def test_names_that_begin_in_this_folder_are_fine(foreign, tmp_path):
    extract(foreign([("./a/b.txt", b"x")]), str(tmp_path / "out"))
    assert files(tmp_path / "out") == {"a/b.txt": b"x"}


def test_a_symbolic_link_in_the_way_is_not_followed(foreign, tmp_path, one_sentence):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/d").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ShardtoolsError) as caught:
        extract(foreign([("d/a.txt", b"x")]), str(tmp_path / "out"))
    assert "symbolic link" in one_sentence(caught.value)
    (tmp_path / "out/a.txt").symlink_to(tmp_path / "elsewhere/a.txt")
    with pytest.raises(ShardtoolsError):
        extract(foreign([("a.txt", b"x")]), str(tmp_path / "out"))
    assert files(tmp_path / "elsewhere") == {}


def test_links_in_a_tar_are_not_made(tmp_path):
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data/a.tar", "w") as archive:
        link = tarfile.TarInfo("a.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    assert extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out")).num_files == 0
    assert not os.path.lexists(tmp_path / "out/a.txt")


def test_devices_and_pipes_in_a_tar_are_not_made(tmp_path):
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data/a.tar", "w") as archive:
        for name, kind in (
            ("a.chr", tarfile.CHRTYPE),
            ("b.blk", tarfile.BLKTYPE),
            ("c.fifo", tarfile.FIFOTYPE),
            ("d.lnk", tarfile.LNKTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "a.txt" if kind == tarfile.LNKTYPE else ""
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("e.txt"))
    assert extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out")).num_files == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["e.txt"]


@pytest.mark.parametrize("key", ["../x", "/tmp/shardtools-x", "a/../../x", "a\0b", "a//b"])
def test_keys_of_mds_that_lead_elsewhere_are_refused(tmp_path, key, one_sentence):
    """Its keys are text of any kind."""
    columns = {"column_names": ["key", "v"], "column_encodings": ["str", "bytes"], "column_sizes": [None, None]}
    config = {"version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": 1 << 26, **columns}
    text, sizes = json.dumps(config, sort_keys=True).encode(), struct.pack("<2I", len(key.encode()), 1)
    row = sizes + key.encode() + b"x"
    begin = 4 + 8 + len(text)
    shard = struct.pack("<3I", 1, begin, begin + len(row)) + text + row
    raw = {"basename": "shard.00000.mds", "bytes": len(shard), "hashes": {}}
    entry = {**config, "raw_data": raw, "zip_data": None, "samples": 1}
    (tmp_path / "data").mkdir()
    (tmp_path / "data/shard.00000.mds").write_bytes(shard)
    (tmp_path / "data/index.json").write_text(json.dumps({"version": 2, "shards": [entry]}))
    with pytest.raises(ShardtoolsError) as caught:
        extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out"))
    assert "the dataset is not to be trusted" in one_sentence(caught.value)
    assert files(tmp_path / "out") == {} and not (tmp_path / "x.v").exists()


def test_a_run_that_is_killed_leaves_whole_files_and_the_next_one_goes_on(build, image_pairs, tmp_path):
    """The process ends without a word in the middle of its ninth file."""
    source = image_pairs(9)
    build(source, tmp_path / "data")
    code = (
        "import os, sys\n"
        "from shardtools.datasets import open_dataset\n"
        "from shardtools.explore import _files\n"
        "from shardtools.explore.extract import extract\n"
        "rename, names = os.rename, []\n"
        "def dying(old, new):\n"
        "    names.append(new)\n"
        "    os._exit(9) if len(names) == 9 else rename(old, new)\n"
        "os.rename = dying\n"
        "extract(open_dataset(sys.argv[1]), sys.argv[2])\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path / "data"), str(tmp_path / "out")], check=False)
    assert died.returncode == 9
    left = {name: data for name, data in files(tmp_path / "out").items() if not name.endswith(".tmp")}
    assert len(left) == 8 and left.items() <= files(source).items()
    done = extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out"))
    assert (done.num_files, done.num_unchanged) == (10, 8)
    assert files(tmp_path / "out") == files(source)


def test_two_samples_of_one_name_are_refused_even_if_equal(foreign, tmp_path, one_sentence):
    for second in (b"x", b"y"):
        with pytest.raises(ShardtoolsError) as caught:
            extract(foreign([("a.txt", b"x"), ("b.txt", b""), ("a.txt", second)]), str(tmp_path / "out"))
        assert "'a.txt' a second time" in one_sentence(caught.value)


def test_names_that_differ_by_case_are_refused_where_they_are_one_file(foreign, tmp_path, one_sentence):
    dataset = foreign([("a.txt", b"x"), ("A.txt", b"y")])
    assert extract(dataset, str(tmp_path / "both"), ExtractOptions(folds_case=False)).num_files == 2
    with pytest.raises(ShardtoolsError) as caught:
        extract(dataset, str(tmp_path / "one"), ExtractOptions(folds_case=True))
    assert "differ only by case" in one_sentence(caught.value)


def test_a_file_and_a_folder_of_one_name_are_refused(foreign, tmp_path, one_sentence):
    with pytest.raises(ShardtoolsError) as caught:
        extract(foreign([("a.d", b"x"), ("a.d/b.txt", b"y")]), str(tmp_path / "out"))
    one_sentence(caught.value)


def test_a_name_too_long_for_the_file_system_is_one_sentence(tmp_path, one_sentence):
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data/a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("n" * 300 + ".txt"))
    with pytest.raises(ShardtoolsError) as caught:
        extract(open_dataset(str(tmp_path / "data")), str(tmp_path / "out"))
    assert "File name too long" in one_sentence(caught.value)


def test_a_destination_that_is_a_file_is_wrong_use(foreign, tmp_path):
    (tmp_path / "out").write_bytes(b"x")
    with pytest.raises(UsageError):
        extract(foreign([("a.txt", b"x")]), str(tmp_path / "out"))


def test_nothing_but_the_files_is_left(foreign, tmp_path):
    extract(foreign([("a.txt", b"x"), ("d/b.txt", b"y")]), str(tmp_path / "out"))
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")) == ["a.txt", "d", "d/b.txt"]
