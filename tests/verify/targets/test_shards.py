"""What readers do to whole shards and whole datasets; stops a lint that looks at members alone."""

import gzip
import json
import warnings

import pytest

from shardtools.datasets import survey_dataset
from shardtools.errors import UsageError
from shardtools.formats.mds import Mds
from shardtools.verify.findings import Findings
from shardtools.verify.targets import TARGETS, check_targets

D, M, R, X = "target-drops", "target-merges", "target-renames", "target-rejects"
READERS = [name for name, reads in TARGETS.items() if reads == "wds"]


@pytest.mark.parametrize(("suffix", "energon"), [(".tar.gz", D), (".tgz", X)])
def test_compressed_shards(shard, kinds_of, suffix, energon):
    folder = shard(["a.x"])
    (folder / "train-0.tar").rename(folder / "raw")
    (folder / f"train-0{suffix}").write_bytes(gzip.compress((folder / "raw").read_bytes()))
    expected = {"energon": [energon], "dali": [X], "wids": [X]}
    for reader in READERS:
        assert kinds_of(folder, reader) == expected.get(reader, []), reader


def test_a_shard_without_a_sample(shard, kinds_of):
    shard(["a.x"])
    folder = shard([], "train-1.tar")
    expected = {"energon": [X], "dali": [X]}
    for reader in READERS:
        assert kinds_of(folder, reader) == expected.get(reader, []), reader


def keys_of(webdataset, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [sample["__key__"] for sample in webdataset.WebDataset([str(path)], shardshuffle=False)]


@pytest.mark.train
@pytest.mark.parametrize("char", ["#", "?", ";"])
def test_characters_that_cut_the_path(webdataset, shard, kinds_of, char):
    folder = shard(["a.x"], f"a{char}b.tar")
    assert kinds_of(folder, "webdataset") == [X]
    assert kinds_of(folder, "energon", "wids", "dali", "hf") == []
    with pytest.raises(FileNotFoundError):
        keys_of(webdataset, folder / f"a{char}b.tar")


@pytest.mark.train
@pytest.mark.parametrize("name", ["a{1..2}.tar", "a{b,c}.tar", "a::b.tar", "a${X}.tar"])
def test_names_that_are_patterns(webdataset, shard, kinds_of, name, monkeypatch):
    monkeypatch.setenv("WDS_X", "y")
    folder = shard(["a.x"], name)
    assert kinds_of(folder, "webdataset") == [X]
    assert webdataset.shardlists.expand_urls(str(folder / name)) != [str(folder / name)]


@pytest.mark.train
@pytest.mark.parametrize("name", ["a b.tar", "a%20b.tar", "a,b.tar", "ä.tar", "{a}.tar"])
def test_names_that_are_none(webdataset, shard, kinds_of, name):
    folder = shard(["a.x"], name)
    assert kinds_of(folder, "webdataset") == []
    assert webdataset.shardlists.expand_urls(str(folder / name)) == [str(folder / name)]
    assert keys_of(webdataset, folder / name) == ["a"]


@pytest.mark.train
def test_shards_of_one_name_in_two_folders(webdataset, shard, kinds_of):
    shard(["a.x"], "train/000.tar")
    folder = shard(["b.x"], "val/000.tar")
    for reader in READERS:
        assert kinds_of(folder, reader) == ([M] if reader in ("webdataset", "wids") else []), reader
    cache_name = webdataset.cache.url_to_cache_name
    assert cache_name("http://h/train/000.tar") == cache_name("http://h/val/000.tar")


def test_more_dots_than_one_in_a_shards_name(shard, kinds_of):
    shard(["a.x"], "s.v1-000.tar")
    folder = shard(["b.x"], "s.v1-001.tar")
    for reader in READERS:
        assert kinds_of(folder, reader) == ([M] if reader == "dali" else []), reader


def test_a_key_in_two_shards(shard, lint):
    shard(["a.x", "b.x"])
    folder = shard(["b.x", "b.y", "c.x"], "train-1.tar")
    (found,) = lint(folder, "energon")
    assert (found.kind, found.key) == (X, "b")
    assert "got 1 sample whose key another sample has" in found.detail
    assert lint(folder, "webdataset", "dali", "wids") == []


def test_a_sample_in_two_parts(shard, kinds_of):
    assert kinds_of(shard(["a.x", "b.x", "a.y", "b.y"]), "energon") == [X]


def test_a_member_twice(shard, kinds_of):
    """wids keeps the last, and loses count of those that follow."""
    folder = shard(["a.x", "b.x", "a.x"])
    assert kinds_of(folder, "wids") == [M]
    assert kinds_of(shard(["a.x", "a.x"], folder="b"), "energon") == [M]
    assert kinds_of(shard(["a.x"], "train-1.tar", folder="data"), "wids") == [M]


def test_keys_that_differ_by_case(shard, lint):
    shard(["A.x", "b.x", "c.x"])
    folder = shard(["a.x", "B.x"], "train-1.tar")
    (found,) = lint(folder, "webdataset")
    assert (found.kind, found.is_note) == ("case-twins", True)
    assert "got 2 samples" in found.detail
    assert {"'A'", "'a'"} <= set(found.detail.replace(" in ", " ").split())


def test_what_lies_behind_damage_is_said_to_be_not_looked_at(shard):
    folder = shard(["a.x", "b.x"])
    data = (folder / "train-0.tar").read_bytes()
    (folder / "train-0.tar").write_bytes(data[:1024] + b"?" + data[1025:])
    findings = Findings(100)
    proof = check_targets(survey_dataset(str(folder)), ["webdataset"], findings)
    assert findings.all() == ()
    assert not any("take every sample" in sentence for sentence in proof.proved)
    assert any("1 shard that cannot be read to the end, such as train-0.tar" in text for text in proof.not_proved)


# What is asked for.


def test_a_target_that_is_not_known(shard, one_sentence):
    with pytest.raises(UsageError) as caught:
        check_targets(survey_dataset(str(shard(["a.x"]))), ["tarp"], Findings(1))
    assert all(name in one_sentence(caught.value) for name in (*TARGETS, "'tarp'"))


def test_a_target_of_another_format(shard, one_sentence):
    with pytest.raises(UsageError) as caught:
        check_targets(survey_dataset(str(shard(["a.x"]))), ["streaming"], Findings(1))
    assert "got streaming, which does not; name one of webdataset, hf" in one_sentence(caught.value)


# What this package writes.


def test_a_packed_dataset_suits_every_reader(image_pairs, build, tmp_path):
    build(image_pairs(60), tmp_path / "out", shard_samples=20)
    findings = Findings(100)
    proof = check_targets(survey_dataset(str(tmp_path / "out")), READERS, findings)
    assert findings.all() == ()
    assert "webdataset 1.0.2 and datasets 5.2.0 and" in proof.proved[0]
    assert any("with a dot before its name" in sentence for sentence in proof.proved)


def test_hostile_names_packed_suit_every_reader(tree, build, kinds_of, tmp_path):
    names = ["IMG 2.0 (x).mp3", "ä/ö.mp3", "A.mp3", "b/.._c.mp3", "n" * 150 + ".mp3", "__x.mp3", "d.1/a.mp3"]
    build(tree(dict.fromkeys(names, b"x")), tmp_path / "out", group="file")
    assert kinds_of(tmp_path / "out", *READERS) == []


def test_packed_jsonl_suits_every_reader(tmp_path, kinds_of):
    from shardtools.build.order import Order
    from shardtools.build.run import build
    from shardtools.formats.wds import Wds
    from shardtools.sources.jsonl import Jsonl

    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"i": i, "text": "t" * i}) + "\n" for i in range(100)))
    build([str(tmp_path / "x.jsonl")], str(tmp_path / "out"), Order(Jsonl(), Wds()))
    assert kinds_of(tmp_path / "out", *READERS) == []


# MDS.


@pytest.fixture
def mds(build, rows, tmp_path):
    def make(name="mds", shard_format=None, columns=None):
        (tmp_path / "src").mkdir(exist_ok=True)
        source = rows([b"a", b"b", b"c"], columns or {"n": [1, 2, 3]}, {"n": "int"})
        build(tmp_path / "src", tmp_path / name, shard_format or Mds(), source=source, shard_samples=2)
        return tmp_path / name

    return make


def test_packed_mds_suits_streaming(mds, lint):
    assert lint(mds(), "streaming") == []
    findings = Findings(100)
    proof = check_targets(survey_dataset(str(mds("zip", Mds(compression="zstd")))), ["streaming"], findings)
    assert findings.all() == ()
    assert any("LocalDataset" in sentence for sentence in proof.proved)


@pytest.mark.parametrize(
    "change",
    [
        {"column_encodings": ["str", "pkl"]},
        {"column_encodings": ["str", "int128"]},
        {"samples": 0},
    ],
)
def test_mds_that_streaming_refuses(mds, kinds_of, change):
    folder = mds()
    (folder / "shardtools.manifest").unlink()
    content = json.loads((folder / "index.json").read_text())
    content["shards"][0] |= change
    (folder / "index.json").write_text(json.dumps(content))
    assert kinds_of(folder, "streaming") == [X]


@pytest.mark.train
def test_partitions_without_an_index_above_them(streaming, mds, kinds_of, tmp_path):
    for part in ("p0", "p1"):
        (mds(f"all/{part}") / "shardtools.manifest").unlink()
    assert kinds_of(tmp_path / "all", "streaming") == [X]
    with warnings.catch_warnings(), pytest.raises(Exception, match=r"index\.json"):
        warnings.simplefilter("ignore")
        streaming.LocalDataset(str(tmp_path / "all"))


@pytest.mark.train
def test_pickles_as_streaming_refuses_them(streaming, tmp_path, kinds_of):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with streaming.MDSWriter(out=str(tmp_path / "mds"), columns={"x": "pkl"}) as sink:
            sink.write({"x": 1})
        assert kinds_of(tmp_path / "mds", "streaming") == [X]
        with pytest.raises(ValueError, match="unsafe"):
            streaming.StreamingDataset(local=str(tmp_path / "mds"), batch_size=1)
