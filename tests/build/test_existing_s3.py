"""Merging and indexing in buckets comes to the bytes it comes to in folders; stops a copy of another object, and bytes sent to and fro."""

import shutil
from collections import Counter

import pytest
from s3_stores import BUCKET, client_of

from shardtools.build.existing.admit import UnsoundShardsError
from shardtools.build.existing.stage import StageShard
from shardtools.build.merge import MergeOptions, merge
from shardtools.build.reindex import ReindexOptions, reindex
from shardtools.errors import ShardtoolsError, StorageError, UsageError
from shardtools.formats.mds import Mds
from shardtools.storage.s3 import _client
from shardtools.verify import VerifyOptions, verify


class Bucket:
    """The objects below one place, by a client that owes nothing to the package."""

    def __init__(self, uri, environment):
        self.uri = uri
        self._plain, self._prefix = client_of(environment), uri.removeprefix(f"s3://{BUCKET}/")

    def put(self, name, data):
        self._plain.put_object(Bucket=BUCKET, Key=f"{self._prefix}/{name}", Body=data)

    def delete(self, name):
        self._plain.delete_object(Bucket=BUCKET, Key=f"{self._prefix}/{name}")

    def fill(self, folder, name):
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{name}/{path.relative_to(folder)}", path.read_bytes())
        return f"{self.uri}/{name}"

    def files(self, name):
        pages = self._plain.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{self._prefix}/{name}/")
        keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        return {key.removeprefix(f"{self._prefix}/{name}/"): self._plain.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


@pytest.fixture
def bucket(s3_store, s3_uri):
    return Bucket(s3_uri, s3_store["environment"])


@pytest.fixture
def parts(tmp_path, build, image_pairs):
    """Datasets in the folders 2, 10 and deep/1 of one folder: ``parts("wds")``."""

    def make(shard_format="wds"):
        for i, name in enumerate(("2", "10", "deep/1")):
            source = image_pairs(5, seed=i, name=f"source-{i}")
            for path in [each for each in source.rglob("*") if each.is_file()]:
                path.rename(path.with_name(f"{i}-{path.name}"))
            build(source, tmp_path / "parts" / name, shard_format, shard_samples=2)
        return tmp_path / "parts"

    return make


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_private(found):
    return {name: data for name, data in found.items() if not name.startswith(".shardtools/build/")}


ONE = MergeOptions(workers=1)


SLOW = pytest.mark.slow
FORMATS = [
    pytest.param("wds", id="wds"),
    pytest.param(Mds(), id="mds", marks=SLOW),
    pytest.param(Mds(compression="zstd"), id="zstd", marks=SLOW),
]


@pytest.mark.parametrize("shard_format", FORMATS)
def test_sources_and_destinations_anywhere_give_the_same_bytes(parts, bucket, tmp_path, shard_format):
    folder = parts(shard_format)
    uri = bucket.fill(folder, "parts")
    merge([str(folder)], str(tmp_path / "all"), ONE)
    expected = files(tmp_path / "all")
    merge([uri], f"{bucket.uri}/there", ONE)
    merge([str(folder)], f"{bucket.uri}/up", ONE)
    merge([uri], str(tmp_path / "down"), ONE)
    assert without_private(bucket.files("there")) == expected
    assert without_private(bucket.files("up")) == expected
    assert files(tmp_path / "down") == expected
    assert not any(name.startswith(".shardtools/build/") for name in [*bucket.files("there"), *bucket.files("up")])
    assert verify(f"{bucket.uri}/there", VerifyOptions(workers=1, against=(str(tmp_path / "all"),))).findings == ()
    assert merge([uri], f"{bucket.uri}/there", ONE).already_complete


def test_within_a_bucket_no_shard_is_sent(parts, bucket):
    uri = bucket.fill(parts(), "parts")
    counts, sent = Counter(), []

    def note(model, params, **_):
        counts.update([model.name])
        if model.name in ("PutObject", "UploadPart"):
            sent.append(params["url_path"])

    _client.forget_client()
    _client.client().meta.events.register("before-call.s3", note)
    merge([uri], f"{bucket.uri}/all", ONE)
    assert not any(".tar" in path or "/staged/" in path for path in sent)
    assert counts["CopyObject"] >= 9


def test_a_shard_that_is_replaced_after_it_was_looked_at_is_not_merged(parts, bucket, tmp_path, monkeypatch, one_sentence):
    folder = parts()
    uri = bucket.fill(folder, "parts")
    stage = StageShard.__call__

    def replaced(self, item, report):
        bucket.put("parts/2/train-000000.tar", (folder / "2/train-000001.tar").read_bytes())
        stage(self, item, report)

    for destination in (f"{bucket.uri}/all", str(tmp_path / "all")):
        bucket.put("parts/2/train-000000.tar", (folder / "2/train-000000.tar").read_bytes())
        with monkeypatch.context() as patch:
            patch.setattr(StageShard, "__call__", replaced)
            with pytest.raises(StorageError) as caught:
                merge([uri], destination, ONE)
        assert "parts/2/train-000000.tar" in one_sentence(caught.value)
    assert "shardtools.manifest" not in bucket.files("all")
    assert not (tmp_path / "all/shardtools.manifest").exists()


REFUSED = {
    "damaged": lambda bucket, data: bucket.put("parts/10/train-000001.tar", data[:-1]),
    "missing": lambda bucket, _: bucket.delete("parts/10/train-000001.tar"),
    "unnamed": lambda bucket, data: bucket.put("parts/10/train-000009.tar", data),
    "lost manifest": lambda bucket, data: bucket.put("parts/x/shard.00000.mds", data),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_not_whole_is_refused_by_name(parts, bucket, fault, one_sentence):
    folder = parts()
    uri = bucket.fill(folder, "parts")
    REFUSED[fault](bucket, (folder / "10/train-000001.tar").read_bytes())
    with pytest.raises(ShardtoolsError) as caught:
        merge([uri], f"{bucket.uri}/all", ONE)
    assert "parts/" in one_sentence(caught.value)
    assert bucket.files("all") == {}


def test_one_sentence_for_wrong_use(parts, bucket, one_sentence):
    folder = parts()
    uri = bucket.fill(folder, "parts")
    cases = [
        ([uri], f"{uri}/all", ONE, "apart from every source"),
        ([f"{uri}/2"], uri, ONE, "apart from every source"),
        ([uri], f"{bucket.uri}/all", MergeOptions(workers=1, link=True), "--link"),
        ([str(folder)], f"{bucket.uri}/all", MergeOptions(workers=1, link=True), "--link"),
        ([uri, f"{uri}/2"], f"{bucket.uri}/all", ONE, "every dataset once"),
        ([f"{bucket.uri}/nothing"], f"{bucket.uri}/all", ONE, "nothing of that name"),
    ]
    for sources, destination, options, expected in cases:
        with pytest.raises(UsageError) as caught:
            merge(sources, destination, options)
        assert expected in one_sentence(caught.value)
    assert bucket.files("all") == {}


@pytest.mark.parametrize("shard_format", ["wds", Mds()], ids=["wds", "mds"])
def test_index_makes_the_same_files_as_in_a_folder(tmp_path, build, image_pairs, bucket, shard_format):
    build(image_pairs(9), tmp_path / "data", shard_format, shard_samples=4)
    shards = tmp_path / "shards"
    shards.mkdir()
    for path in [*(tmp_path / "data").glob("*.tar"), *(tmp_path / "data").glob("*.mds")]:
        shutil.copy(path, shards)
    uri = bucket.fill(shards, "shards")
    options = ReindexOptions(("dali", "energon", "wids") if shard_format == "wds" else (), workers=1)
    assert reindex(uri, options).made == reindex(str(shards), options).made
    assert bucket.files("shards") == files(shards)
    bucket.put("shards/shardtools.offsets", b"x" * 8)
    assert reindex(uri, options).replaced == ("shardtools.offsets",)
    assert bucket.files("shards") == files(shards)


def test_index_refuses_damage_and_what_is_not_there(tmp_path, build, image_pairs, bucket, one_sentence):
    build(image_pairs(9), tmp_path / "data", shard_samples=4)
    uri = bucket.fill(tmp_path / "data", "data")
    bucket.put("data/train-000001.tar", bytes(10240))
    before = bucket.files("data")
    with pytest.raises(UnsoundShardsError) as caught:
        reindex(uri)
    assert "train-000001.tar" in one_sentence(caught.value)
    assert bucket.files("data") == before
    with pytest.raises(UsageError) as missing:
        reindex(f"{bucket.uri}/nothing")
    assert "got none" in one_sentence(missing.value)
