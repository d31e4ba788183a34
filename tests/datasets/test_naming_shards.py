"""Patterns name the shards they say, in their order; stops a reader that passes over a shard, or over one that is not there."""

import gzip
import itertools
import os
import pickle
import random
import time

import pytest

from shardtools.datasets import number_gaps, open_dataset, survey_dataset
from shardtools.datasets._braces import count_braces, expand_braces
from shardtools.errors import StorageError, UsageError
from shardtools.formats.mds import Mds


@pytest.fixture
def shards(tmp_path, ustar):
    """Write tars, each with one sample named like the file, and return their folder."""

    def write(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = ustar([(f"{name.replace('.', '_')}.txt", b"x")])
            path.write_bytes(data if name.endswith(".tar") else gzip.compress(data))
        return tmp_path

    return write


def names_of(uri):
    return [shard.name for shard in open_dataset(str(uri)).shards]


# Braces.

BRACES = {
    "x.tar": ["x.tar"],
    "{000000..000002}.tar": ["000000.tar", "000001.tar", "000002.tar"],
    "{8..11}": ["8", "9", "10", "11"],
    "{08..11}": ["08", "09", "10", "11"],
    "{2..-1}": ["2", "1", "0", "-1"],
    "{0..6..3}": ["0", "3", "6"],
    "{a..e..2}": ["a", "c", "e"],
    "{train,val}-{0..1}.tar": ["train-0.tar", "train-1.tar", "val-0.tar", "val-1.tar"],
    "{a{1..2},b}x": ["a1x", "a2x", "bx"],
    "x{,y}": ["x", "xy"],
    "{x}": ["{x}"],
    "{x{1,2}}": ["{x1}", "{x2}"],
    "{}": ["{}"],
    r"a\{1,2\}": ["a{1,2}"],
    r"{a\,b,c}": ["a,b", "c"],
}


@pytest.mark.parametrize("pattern", BRACES)
def test_braces(pattern):
    assert list(expand_braces(pattern)) == BRACES[pattern]
    assert count_braces(pattern) == len(BRACES[pattern])


@pytest.mark.parametrize("pattern", ["{", "a{b", "}", "{1..2", "{a,{b}"])
def test_braces_that_do_not_close(tmp_path, pattern, one_sentence):
    with pytest.raises(UsageError) as caught:
        open_dataset(str(tmp_path / f"{pattern}*"))
    assert pattern in one_sentence(caught.value)


@pytest.mark.train
def test_braces_as_webdataset_expands_them(webdataset):
    seed = 20240229
    print("seed", seed)
    numbers = random.Random(seed)
    pieces = ["a", "b-", "{0..3}", "{00..12}", "{x,y}", "{x,{1..2}}", ",", "..", "{q}", "{c..a}", "/", "{5..1..2}", "{,z}"]
    for _ in range(500):
        pattern = "".join(numbers.choices(pieces, k=numbers.randint(1, 5)))
        expanded = list(webdataset.shardlists.braceexpand.braceexpand(pattern))
        assert list(expand_braces(pattern)) == expanded, pattern
        assert count_braces(pattern) == len(expanded), pattern


TOO_MANY = ["a-{0..1000000000}.tar", "{0..99}" * 5 + ".tar", "{0..9999999}.tar::b.tar", "{x,{0..9999999}}", "{0.." + "9" * 40 + "..3}"]


@pytest.mark.parametrize("pattern", TOO_MANY)
def test_ranges_of_too_many_shards_are_refused_before_they_are_written_out(tmp_path, pattern, one_sentence):
    begin = time.thread_time()
    with pytest.raises(UsageError) as caught:
        open_dataset(f"{tmp_path}/{pattern}")
    assert time.thread_time() - begin < 0.5
    assert "at most 10,000,000 shards" in one_sentence(caught.value)


# What patterns find.


def test_a_brace_list_of_shards(shards):
    root = shards("train-000000.tar", "train-000001.tar", "val-000000.tar", "other.tar")
    dataset = open_dataset(f"{root}/train-{{000000..000001}}.tar")
    assert [shard.name for shard in dataset.shards] == ["train-000000.tar", "train-000001.tar"]
    assert (dataset.format_name, dataset.uri, dataset.problems, dataset.is_selection) == ("wds", str(root), (), True)
    assert [sample.key for _, sample in dataset.all_samples()] == ["train-000000_tar", "train-000001_tar"]
    assert names_of(f"{root}/{{val,train}}-000000.tar") == ["val-000000.tar", "train-000000.tar"]


def test_wildcards(shards):
    root = shards("a/0.tar", "a/1.tar.gz", "a/b/2.tgz", "a/.hidden.tar", ".h/3.tar", "c/10.tar")
    (root / "a/README").write_text("x")
    assert names_of(f"{root}/a/*") == ["0.tar", "1.tar.gz"]
    assert names_of(f"{root}/a/[0-9].tar") == ["0.tar"]
    assert names_of(f"{root}/*/?.tar") == ["0.tar"]
    assert names_of(f"{root}/**") == ["a/0.tar", "a/1.tar.gz", "a/b/2.tgz", "c/10.tar"]
    assert names_of(f"{root}/**/*.tar") == ["a/0.tar", "c/10.tar"]
    assert names_of(f"{root}/{{c,a}}/*.tar") == ["c/10.tar", "a/0.tar"]
    assert names_of(f"{root}/c/*.tar::{root}/a/0.tar") == ["c/10.tar", "a/0.tar"]
    assert names_of(f"file://{root}/a/*.tar") == ["0.tar"]
    assert names_of(f"{root}/.h/*.tar") == ["3.tar"]


def test_a_relative_pattern(shards, monkeypatch):
    root = shards("s/0.tar", "s/1.tar")
    monkeypatch.chdir(root / "s")
    assert names_of("*.tar") == ["0.tar", "1.tar"]
    assert names_of("../s/{0,1}.tar") == ["0.tar", "1.tar"]


def test_a_file_named_like_a_pattern_is_that_file(shards):
    root = shards("x[1]{a,b}.tar", "x1a.tar", "d*/0.tar", "d1/1.tar")
    assert names_of(root / "x[1]{a,b}.tar") == ["x[1]{a,b}.tar"]
    assert names_of(root / "d*") == ["0.tar"]
    assert names_of(f"{root}/d1/1.tar::{root}/d*/0.tar") == ["d1/1.tar", "d*/0.tar"]


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.tgz"])
def test_one_shard_file(shards, name):
    root = shards(name, "y.tar")
    dataset = open_dataset(str(root / name))
    assert [(shard.name, shard.compression) for shard in dataset.shards] == [(name, None if name == "x.tar" else "gzip")]
    assert len(list(dataset.all_samples())) == 1


def test_a_shard_named_twice_is_read_twice_as_webdataset_reads_it(shards):
    root = shards("0.tar")
    assert names_of(f"{root}/0.tar::{root}/0.tar") == ["0.tar", "0.tar"]


def test_links_to_folders_are_followed_by_a_star(shards):
    root = shards("store/0.tar")
    (root / "data").mkdir()
    (root / "data/link").symlink_to("../store")
    assert names_of(f"{root}/data/*/*.tar") == ["0.tar"]


def test_shards_of_a_list_that_are_not_there_are_problems(shards):
    root = shards("0000.tar", "0002.tar")
    dataset = open_dataset(f"{root}/{{0000..0003}}.tar")
    assert [(shard.name, shard.num_bytes is None) for shard in dataset.shards] == [
        ("0000.tar", False),
        ("0001.tar", True),
        ("0002.tar", False),
        ("0003.tar", True),
    ]
    assert [(problem.kind, problem.name) for problem in dataset.problems] == [("missing-file", "0001.tar"), ("missing-file", "0003.tar")]
    with pytest.raises(StorageError):
        list(dataset.all_samples())


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("*.tgz", "no file of such a name"),
        ("{train,val}-*.tar", "val-*.tar"),
        ("no/{0..5}.tar", "none of them"),
        ("README*", "other files only"),
        ("{train-0.tar,README}", "a file of another kind"),
        ("{train-0.tar,none}", "nothing of that name"),
        ("train-0.tar::", "both sides of ::"),
        ("{train-0.tar,x.mds}", "one format"),
        ("train-{0..99999999}.tar", "at most 100"),
    ],
)
def test_a_pattern_that_cannot_be_meant(shards, pattern, words, one_sentence, monkeypatch):
    monkeypatch.setattr("shardtools.datasets._selection._MAX_SHARDS", 100)
    root = shards("train-0.tar")
    (root / "README").write_text("x")
    (root / "x.mds").write_bytes(b"x")
    with pytest.raises(UsageError) as caught:
        open_dataset(f"{root}/{pattern}")
    assert words in one_sentence(caught.value)
    assert pattern.split("::")[0] in str(caught.value)


def test_a_folder_that_cannot_be_listed_is_no_folder_without_shards(shards, monkeypatch, one_sentence):
    root = shards("a/0.tar", "b/1.tar")
    scandir = os.scandir

    def refusing(path):
        if path == str(root / "b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("shardtools.datasets._wildcards.os.scandir", refusing)
    with pytest.raises(StorageError) as caught:
        open_dataset(f"{root}/*/*.tar")
    assert str(root / "b") in one_sentence(caught.value)


def test_a_selection_can_be_sent_to_another_process(shards):
    dataset = open_dataset(f"{shards('0.tar', '1.tar')}/*.tar")
    assert pickle.loads(pickle.dumps(dataset)) == dataset


@pytest.mark.slow
def test_a_million_names(tmp_path, ustar):
    (tmp_path / "shard-0000000.tar").write_bytes(ustar([("a.txt", b"x")]))
    began = time.process_time()
    dataset = survey_dataset(f"{tmp_path}/shard-{{0000000..0999999}}.tar")
    assert (len(dataset.shards), len(dataset.problems)) == (1_000_000, 999_999)
    assert time.process_time() - began < 120


# Gaps in numbers.

GAPS = {
    "a gap": (["train-000000.tar", "train-000002.tar"], ["3 shards numbered without a gap, got none named train-000001.tar"]),
    "no gap": (["t-1.tar", "t-2.tar", "t-3.tar"], []),
    "two series": (["a/0.tar", "a/1.tar", "b/0.tar", "b/2.tar"], ["got none named b/1.tar"]),
    "unpadded": (["8.tar", "9.tar", "11.tar"], ["4 shards numbered without a gap, got none named 10.tar"]),
    "compressed in part": (["0.tar", "1.tar.gz", "2.tar", "3.tgz"], []),
    "compressed": (["0.tgz", "2.tgz"], ["got none named 1.tgz"]),
    "mds": (["shard.00000.mds", "shard.00001.mds.zstd", "shard.00003.mds"], ["got none named shard.00002.mds"]),
    "dates": (["20240101.tar", "20240311.tar", "20240312.tar"], []),
    "one of many": (["x-00000-of-00003.tar", "x-00002-of-00003.tar"], ["got none named x-00001-of-00003.tar"]),
    "the last of many": (["x-0-of-3.tar", "x-1-of-3.tar"], ["got none named x-2-of-3.tar"]),
    "many counted from one": (["x-1-of-2.tar", "x-2-of-2.tar"], []),
    "a version in the name": (["v2-0.tar.gz", "v2-1.tar.gz", "v3-5.tar.gz"], []),
    "many": ([f"{i:04d}.tar" for i in range(40) if i % 3 != 1], ["0001.tar, 0004.tar, 0007.tar and 10 more"]),
}


@pytest.mark.parametrize("case", GAPS)
def test_gaps(case):
    names, expected = GAPS[case]
    found = [detail for _, detail in number_gaps(names)]
    assert len(found) == len(expected)
    assert all(text in detail for text, detail in zip(expected, found, strict=True))


def test_gaps_of_names_that_are_certainly_numbers():
    """However wide, and where told so also before the first."""
    names = ["train-00009.tar", "train-00002.tar"]
    assert list(number_gaps(names)) == []
    assert "got none named train-00003.tar, train-00004.tar, train-00005.tar and 3 more" in next(number_gaps(names, is_certain=True))[1]
    assert "got none named train-00000.tar" in next(number_gaps(names, is_certain=True, from_zero=True))[1]
    assert list(number_gaps(names[1:], is_certain=True)) == []


def test_a_folder_with_a_gap_still_opens(shards):
    dataset = open_dataset(str(shards("train-000000.tar", "train-000002.tar")))
    assert [(problem.kind, problem.name) for problem in dataset.problems] == [("number-gap", "train-000002.tar")]
    assert open_dataset(f"{dataset.uri}/*.tar").problems == dataset.problems
    assert open_dataset(f"{dataset.uri}/train-00000{{0,2}}.tar").problems == dataset.problems


# MDS.


@pytest.fixture
def parts(build, rows, tmp_path):
    """Folders of MDS by name, with the keys ``{name}/k0`` to ``k4`` in shards of two, and no index above them."""

    def write(*names, shard_format=None):
        for number, name in enumerate(names):
            (tmp_path / f"src{number}").mkdir(exist_ok=True)
            source = rows([f"{name}/k{i}".encode() for i in range(5)], {"n": list(range(5))}, {"n": "int"})
            build(tmp_path / f"src{number}", tmp_path / "mds" / name, shard_format or Mds(), source=source, shard_samples=2)
            (tmp_path / "mds" / name / "shardtools.manifest").unlink()
        return tmp_path / "mds"

    return write


def keys_of(uri):
    return [sample.key for _, sample in open_dataset(str(uri)).all_samples()]


def test_partitions_without_an_index_above_them_are_one_dataset(parts):
    names = ["part-0", "part-1", "deep/er/part-2"]
    root = parts(*names)
    dataset = open_dataset(str(root))
    assert dataset.format_name == "mds"
    assert [shard.name for shard in dataset.shards][:4] == [
        "deep/er/part-2/shard.00000.mds",
        *(f"deep/er/part-2/shard.0000{i}.mds" for i in (1, 2)),
        "part-0/shard.00000.mds",
    ]
    assert [shard.index for shard in dataset.shards] == list(range(9))
    assert keys_of(root) == [f"{name}/k{i}" for name in sorted(names) for i in range(5)]
    assert dataset.num_samples == 15


def test_an_index_below_another_was_merged_into_it(parts):
    root = parts("a/p0", "b")
    text = (root / "a/p0/index.json").read_text()
    (root / "a/index.json").write_text(text.replace('"basename": "', '"basename": "p0/'))
    assert keys_of(root) == [f"{name}/k{i}" for name in ("a/p0", "b") for i in range(5)]


def test_an_index_at_the_root_wins(parts):
    root = parts("p0", "p1")
    (root / "index.json").write_text((root / "p0/index.json").read_text().replace('"basename": "', '"basename": "p0/'))
    assert keys_of(root) == [f"p0/k{i}" for i in range(5)]


def test_a_damaged_index_of_a_partition_is_named(parts):
    root = parts("p0", "p1")
    (root / "p1/index.json").write_text('{"shards": [7], "version": 2}')
    assert [problem.name for problem in survey_dataset(str(root)).problems] == ["p1/index.json"]


def test_tars_and_mds_in_one_folder_are_no_dataset(parts, ustar, one_sentence):
    root = parts("p0")
    (root / "x.tar").write_bytes(ustar([("a.txt", b"x")]))
    with pytest.raises(UsageError) as caught:
        open_dataset(str(root))
    assert "one format" in one_sentence(caught.value)


def test_folders_by_a_pattern(parts):
    root = parts("part-0", "part-1", "part-2")
    assert keys_of(f"{root}/part-{{2,0}}") == [f"part-{n}/k{i}" for n in (2, 0) for i in range(5)]
    assert keys_of(f"{root}/part-*") == [f"part-{n}/k{i}" for n in range(3) for i in range(5)]
    dataset = open_dataset(f"{root}/part-{{2,0}}")
    assert [shard.index for shard in dataset.shards] == list(range(6))
    assert dataset.shards[3].name == "part-0/shard.00000.mds"


def test_a_folder_and_a_file_joined(shards):
    root = shards("a/b/0.tar", "c/1.tar", "c/2.tar")
    assert names_of(f"{root}/a/b/0.tar::{root}/c") == ["a/b/0.tar", "c/1.tar", "c/2.tar"]


@pytest.mark.parametrize("shard_format", [Mds(), Mds(compression="zstd")], ids=["raw", "zstd"])
@pytest.mark.parametrize("has_index", [True, False])
def test_mds_files_by_name(parts, shard_format, has_index):
    """With an index beside them or without: a shard tells its own columns."""
    root = parts("p", shard_format=shard_format)
    if not has_index:
        (root / "p/index.json").unlink()
    suffix = ".mds" if shard_format.compression is None else ".mds.zstd"
    one = open_dataset(f"{root}/p/shard.00001{suffix}")
    assert [(sample.key, one.decode(shard, "n", sample.values["n"])) for shard, sample in one.all_samples()] == [("p/k2", 2), ("p/k3", 3)]
    assert (one.shards[0].entry is not None) == has_index
    assert [field.name for field in one.fields] == ["key", "n"]
    assert keys_of(f"{root}/p/*{suffix}") == [f"p/k{i}" for i in range(5)]
    assert keys_of(f"{root}/p/shard.0000{{2,0}}{suffix}") == [f"p/k{i}" for i in (4, 0, 1)]


def test_headers_of_any_content_open(tmp_path):
    """What is wrong with them is said when the shard is read."""
    seed = 7
    print("seed", seed)
    numbers = random.Random(seed)
    for i, length in enumerate(itertools.chain(range(12), [100, 5000])):
        (tmp_path / f"{i}.mds").write_bytes(numbers.randbytes(length))
    (tmp_path / "z.mds.zstd").write_bytes(b"no zstd")
    (tmp_path / "g.mds.gz").write_bytes(b"no gzip")
    dataset = open_dataset(f"{tmp_path}/*.mds*")
    assert len(dataset.shards) == 16
    assert dataset.fields == ()
