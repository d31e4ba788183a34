"""Damage in a bucket is found as in a folder, by whoever may only read; stops a verify that trusts a store more than a disk."""

import gzip
import json
import shutil

import pytest
from mutation.sealing import with_manifest
from s3_stores import BUCKET, client_of, use

from shardtools.datasets import _unpack
from shardtools.errors import UsageError
from shardtools.formats.mds import Mds
from shardtools.storage.s3 import S3
from shardtools.verify import DeliveryOptions, VerifyOptions, verify


class Bucket:
    """The objects below one place, by a client that owes nothing to the package."""

    def __init__(self, uri, environment):
        self.uri, self.environment = uri, environment
        self._plain, self._prefix = client_of(environment), uri.removeprefix(f"s3://{BUCKET}/")

    def put(self, name, data):
        self._plain.put_object(Bucket=BUCKET, Key=f"{self._prefix}/{name}", Body=data)

    def delete(self, name):
        self._plain.delete_object(Bucket=BUCKET, Key=f"{self._prefix}/{name}")

    def fill(self, folder):
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(str(path.relative_to(folder)), path.read_bytes())
        return self


@pytest.fixture
def bucket(s3_store, s3_uri):
    return Bucket(s3_uri, s3_store["environment"])


@pytest.fixture
def packed(tmp_path, build, image_pairs):
    """Three shards of twelve pairs in a folder: ``packed("wds")``."""

    def make(shard_format="wds"):
        build(image_pairs(12), tmp_path / "out", shard_format, shard_samples=4)
        return tmp_path / "out"

    return make


def found(uri, **options):
    return [
        (finding.kind, finding.shard, finding.key, finding.offset)
        for finding in verify(str(uri), VerifyOptions(workers=1, **options)).findings
    ]


FORMATS = [
    pytest.param("wds", id="wds"),
    pytest.param(Mds(), id="mds"),
    pytest.param(Mds(compression="zstd", hashes=("sha1",)), id="zstd", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("shard_format", FORMATS)
def test_a_sound_dataset_is_sound_on_every_level(packed, bucket, shard_format):
    folder = packed(shard_format)
    bucket.fill(folder)
    options = VerifyOptions(workers=1, no_dup=True, deep=True, against=(str(folder),))
    here, there = (verify(str(uri), options) for uri in (folder, bucket.uri))
    assert there.findings == ()
    assert there.notes == here.notes
    assert (
        (there.num_shards, there.num_samples, there.num_bytes)
        == (here.num_shards, here.num_samples, here.num_bytes)
        == (3, 12, here.num_bytes)
    )
    assert there.proved() == here.proved()


def flipped(files, name):
    data = bytearray(files[name])
    data[len(data) // 2] ^= 4
    files[name] = bytes(data)


def swapped(files, name):
    other = next(each for each in sorted(files) if each != name and (".tar" in each or ".mds" in each))
    files[name], files[other] = files[other], files[name]


MUTANTS = {
    "flip": (flipped, "wrong-sha256"),
    "cut": (lambda files, name: files.update({name: files[name][:-700]}), "wrong-size"),
    "empty": (lambda files, name: files.update({name: b""}), "wrong-size"),
    "longer": (lambda files, name: files.update({name: files[name] + b"\n"}), "wrong-size"),
    "missing": (lambda files, name: files.pop(name), "missing-file"),
    "doubled": (lambda files, name: files.update({name.replace("0002", "0009"): files[name]}), "extra-file"),
    "swapped": (swapped, "wrong-s"),
    "offsets": (lambda files, _: flipped(files, "shardtools.offsets"), "wrong-sha256"),
    "manifest": (lambda files, _: flipped(files, "shardtools.manifest"), "manifest-damaged"),
}


@pytest.mark.parametrize("shard_format", FORMATS)
def test_each_damage_is_the_finding_it_is_in_a_folder(packed, bucket, shard_format):
    folder = packed(shard_format)
    sound = files_in(folder)
    bucket.fill(folder)
    (shard,) = (name for name in sound if "0002" in name)
    for mutant, (damage, kind) in MUTANTS.items():
        files = dict(sound)
        damage(files, shard)
        become(bucket, folder, files)
        there = found(bucket.uri)
        assert any(each[0].startswith(kind) for each in there), (mutant, there)
        assert there == found(folder), mutant
        become(bucket, folder, sound)
    assert found(bucket.uri) == []


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def become(bucket, folder, files):
    """Bucket and folder, alike before, get these files and no others."""
    before = files_in(folder)
    for name in before.keys() - files.keys():
        (folder / name).unlink()
        bucket.delete(name)
    for name, data in files.items():
        if before.get(name) != data:
            (folder / name).write_bytes(data)
            bucket.put(name, data)


def test_damage_in_shards_nothing_describes(packed, bucket):
    folder = packed()
    for path in sorted(folder.glob("*.tar")):
        bucket.put(
            f"{path.name}.gz" if path.name.endswith("1.tar") else path.name,
            gzip.compress(path.read_bytes()) if path.name.endswith("1.tar") else path.read_bytes(),
        )
    assert found(bucket.uri) == []
    data = (folder / "train-000002.tar").read_bytes()
    bucket.put("train-000002.tar", data[:-12000])
    assert [(kind, shard) for kind, shard, _, _ in found(bucket.uri)] == [("damaged-shard", "train-000002.tar")]
    bucket.put("train-000002.tar", (folder / "train-000000.tar").read_bytes())
    assert {kind for kind, *_ in found(bucket.uri)} == {"duplicate-key"}
    bucket.delete("train-000001.tar.gz")
    bucket.delete("train-000002.tar")
    pattern = f"{bucket.uri}/train-{{000000..000002}}.tar"
    assert [(kind, shard) for kind, shard, _, _ in found(pattern)] == [
        ("missing-file", "train-000001.tar"),
        ("missing-file", "train-000002.tar"),
    ]


def test_names_that_lead_out_of_the_dataset_are_not_followed(packed, bucket):
    folder = packed()
    bucket.fill(folder)
    sound = files_in(folder)
    for name in ("../train-000002.tar", "/etc/passwd", "a//b.tar", "a\\b.tar"):
        become(bucket, folder, with_manifest(sound, lambda content, name=name: content["shards"][2].update(name=name)))
        there = found(bucket.uri)
        assert "unsafe-name" in [kind for kind, *_ in there], name
        assert there == found(folder), name


def test_a_shard_that_is_replaced_while_it_is_read(packed, bucket, monkeypatch):
    """Of the same length, longer, shorter, and gone: nothing of two shards is ever taken for one."""
    folder = packed()
    bucket.fill(folder)
    name = "train-000001.tar"
    sound = (folder / name).read_bytes()
    read_into = S3.read_into
    for data, kinds in (
        (sound[::-1], {"wrong-sha256"}),
        (sound + bytes(512), {"could-not-look"}),
        (sound[:-1024], {"damaged-shard"}),
        (None, {"could-not-look"}),
    ):

        def replaced(self, wanted, view, begin=0, data=data):
            if wanted == name:
                bucket.delete(name) if data is None else bucket.put(name, data)
            read_into(self, wanted, view, begin)

        bucket.put(name, sound)
        with monkeypatch.context() as patch:
            patch.setattr(S3, "read_into", replaced)
            kinds_found = {kind for kind, shard, *_ in found(bucket.uri) if shard == name}
        assert kinds <= kinds_found, (kinds, kinds_found)


def test_shards_too_large_to_be_held_are_read_from_an_unnamed_file(packed, bucket, monkeypatch, tmp_path):
    folder = packed()
    bucket.fill(folder)
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr(_unpack, "MAX_HELD_BYTES", 1000)
    assert found(bucket.uri) == []
    assert list(place.iterdir()) == []


def test_whoever_may_only_read_can_verify_and_the_verdict_holds_no_secret(packed, bucket, s3_store, monkeypatch):
    bucket.fill(packed())
    reader = reader_of(s3_store)
    use(reader, monkeypatch)
    with pytest.raises(Exception, match="AccessDenied"):
        Bucket(bucket.uri, reader).put("x", b"x")
    verdict = verify(bucket.uri, VerifyOptions(workers=1, no_dup=True))
    assert verdict.findings == ()
    text = json.dumps(verdict.as_json())
    for environment in (reader, s3_store["environment"]):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            assert environment[name] not in text


def reader_of(s3_store):
    with open(f"{s3_store['home']}/users.json") as file:
        user = json.load(file)["reader"]
    return {**s3_store["environment"], "AWS_ACCESS_KEY_ID": user["accessKey"], "AWS_SECRET_ACCESS_KEY": user["secretKey"]}


@pytest.mark.train
def test_a_library_that_cannot_read_there_is_refused_before_anything_is_read(packed, bucket, one_sentence):
    bucket.fill(packed())
    with pytest.raises(UsageError) as caught:
        verify(bucket.uri, VerifyOptions(delivery=DeliveryOptions(live=True)))
    assert "expected files of this machine for webdataset" in one_sentence(caught.value)


def test_another_dataset_in_the_bucket_to_compare_with(packed, bucket, tmp_path, build):
    folder = packed()
    bucket.fill(folder)
    build(tmp_path / "pairs", tmp_path / "mds", "mds", shard_samples=5)
    assert found(tmp_path / "mds", against=(bucket.uri,)) == []
    assert found(bucket.uri, against=(str(tmp_path / "mds"),)) == []
    shutil.rmtree(tmp_path / "mds")
    (tmp_path / "pairs/cats/0000.json").write_text('{"other": 1}')
    build(tmp_path / "pairs", tmp_path / "mds", "mds", shard_samples=5)
    assert [(kind, key) for kind, _, key, _ in found(tmp_path / "mds", against=(bucket.uri,))] == [("changed-sample", "cats/0000")]


def test_the_source_in_the_bucket_to_compare_with(packed, bucket, tmp_path):
    folder = packed()
    bucket.fill(folder)
    source = Bucket(f"{bucket.uri}-source", bucket.environment).fill(tmp_path / "pairs")
    verdict = verify(bucket.uri, VerifyOptions(workers=1, against=(source.uri,)))
    assert verdict.findings == ()
    assert "byte for byte, in the order of the plan" in verdict.closing()
    source.put("cats/0003.json", b'{"other": 12345}')
    source.put("emus/0099.jpg", b"new")
    kinds = {(kind, key) for kind, _, key, _ in found(bucket.uri, against=(source.uri,))}
    assert {("changed-sample", "cats/0003"), ("changed-source", None)} <= kinds


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.parametrize(("shard_format", "reader"), [("mds", "streaming"), (Mds(compression="zstd"), "streaming"), ("wds", "shardtools")])
def test_readers_that_can_read_there_deliver_every_sample_once(packed, bucket, shard_format, reader):
    bucket.fill(packed(shard_format))
    verdict = verify(bucket.uri, VerifyOptions(workers=1, delivery=DeliveryOptions(world_sizes=(1,), num_workers=(1,), reader=reader)))
    assert verdict.findings == ()
    assert f"{reader}, run in real processes, delivered every sample exactly once" in verdict.closing()


def test_targets_are_looked_at_there(packed, bucket):
    bucket.fill(packed())
    assert found(bucket.uri, targets=("webdataset", "hf", "wids")) == []
    bucket.put("train-000000.tar.idx", b"")
    assert "target-rejects" in [kind for kind, *_ in found(bucket.uri, targets=("hf",))]
