"""Datasets in a bucket are opened as those in a folder, by few requests; stops a survey that sees less there, or asks for each shard."""

import gzip
import itertools
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from s3_stores import BUCKET, client_of

from shardtools.datasets import open_dataset, survey_dataset
from shardtools.errors import StorageError, UsageError
from shardtools.formats.mds import Mds
from shardtools.storage.s3 import _client


@pytest.fixture
def upload(s3_store, s3_uri):
    """Store a folder's files below a name of the bucket's place, by a plain client; returns its address."""
    plain = client_of(s3_store["environment"])

    def put(folder, name):
        prefix = f"{s3_uri.removeprefix(f's3://{BUCKET}/')}/{name}"
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                plain.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(folder)}")
        return f"{s3_uri}/{name}"

    return put


@contextmanager
def requests_counted():
    """How many requests of each kind the package's client makes inside."""
    counts = Counter()
    _client.forget_client()
    _client.client().meta.events.register("before-call.s3", lambda model, **_: counts.update([model.name]))
    yield counts
    _client.forget_client()


@pytest.fixture
def kinds(tmp_path, build, image_pairs):
    """Datasets of every kind, by name, each in a folder of its own."""
    source = image_pairs(12)
    for name, shard_format in (("wds", "wds"), ("mds", "mds"), ("zstd", Mds(compression="zstd"))):
        build(source, tmp_path / name, shard_format, shard_samples=4)
    packed = {name: tmp_path / name for name in ("wds", "mds", "zstd")}
    foreign = tmp_path / "kinds"
    for name in ("tars", "gzip", "index", "nested", "headers"):
        (foreign / name).mkdir(parents=True)
    for path in (tmp_path / "wds").glob("*.tar"):
        shutil.copy(path, foreign / "tars")
        (foreign / "gzip" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for path in [*(tmp_path / "mds").glob("*.mds"), tmp_path / "mds/index.json"]:
        shutil.copy(path, foreign / "index")
        shutil.copy(path, foreign / "headers")
        for part in ("a/0", "b"):
            (foreign / "nested" / part).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, foreign / "nested" / part)
    (foreign / "headers/index.json").unlink()
    return packed | {path.name: path for path in foreign.iterdir() if path.name != "headers"} | {"headers": foreign / "headers"}


def plain(dataset):
    """What was found, wherever it lies."""
    return replace(dataset, uri=""), [(sample.key, sorted(sample.values)) for _, sample in dataset.all_samples()]


def test_every_kind_is_what_it_is_in_a_folder(kinds, upload):
    for name, folder in kinds.items():
        uri, pattern = upload(folder, name), "/*.mds" if name == "headers" else ""
        assert plain(open_dataset(uri + pattern)) == plain(open_dataset(f"{folder}{pattern}")), name


def test_values_are_those_that_were_stored(kinds, upload):
    for name in ("wds", "mds", "zstd", "gzip"):
        here, there = open_dataset(str(kinds[name])), open_dataset(upload(kinds[name], name))
        values = [
            [{field: bytes(value) for field, value in sample.values.items()} for _, sample in each.all_samples()] for each in (here, there)
        ]
        assert values[0] == values[1], name


@pytest.fixture
def shards(tmp_path, ustar, upload):
    """Tars with one sample each, named like the file, in a folder and in the bucket."""

    def write(*names):
        for name in names:
            path = tmp_path / "shards" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(ustar([(f"{name.replace('.', '_')}.txt", b"x")]))
        return tmp_path / "shards", upload(tmp_path / "shards", "shards")

    return write


PATTERNS = [
    "t-{000..002}.tar",
    "t-{002..000}.tar",
    "*.tar",
    "t-00?.tar",
    "t-00[12].tar",
    "a/*.tar",
    "**/*.tar",
    "a/**/x.tar",
    "a",
    "{a,b}",
    "*",
    "**/c",
    ".h*.tar",
    "t-000.tar",
    "t-{000..004}.tar",
    "t-[!0]*.tar",
]


def test_patterns_name_the_same_shards_in_the_same_order(shards):
    folder, uri = shards("t-000.tar", "t-001.tar", "t-002.tar", "a/x.tar", "a/c/x.tar", "b/y.tar", ".hidden.tar", "a/.hidden/z.tar")
    (folder / "notes.txt").write_text("")
    for pattern in PATTERNS:
        found = []
        for root in (folder, uri):
            try:
                dataset = survey_dataset(f"{root}/{pattern}")
                found.append(([shard.name for shard in dataset.shards], [(problem.kind, problem.name) for problem in dataset.problems]))
            except UsageError as error:
                found.append(str(error).replace(str(root), ""))
        assert found[0] == found[1], pattern
    assert [shard.name for shard in survey_dataset(f"{uri}/*.tar").shards] == ["t-000.tar", "t-001.tar", "t-002.tar"]
    assert [shard.name for shard in survey_dataset(f"{uri}/a/**/*.tar").shards] == ["c/x.tar", "x.tar"]


def test_shards_are_joined_by_colons(shards):
    _, uri = shards("a/x.tar", "b/y.tar")
    assert [shard.name for shard in open_dataset(f"{uri}/b/y.tar::{uri}/a/x.tar").shards] == ["b/y.tar", "a/x.tar"]


def test_one_sentence_for_what_is_no_dataset(shards, one_sentence, tmp_path):
    _, uri = shards("a/x.tar")
    for word, expected in {
        f"{uri}/nothing": "got nothing of that name",
        f"{uri}/*.mds": "got no file of such a name",
        f"{uri}/n-{{0..3}}.tar": "got none of them",
        f"{uri}/a/x.tar::{tmp_path}/shards/a/x.tar": "shards of one bucket",
        f"{uri}/a/../x.tar": "without empty parts, . and ..",
        "s3://*/x.tar": "bucket",
    }.items():
        with pytest.raises((UsageError, StorageError)) as caught:
            open_dataset(word)
        assert expected in one_sentence(caught.value)


@pytest.mark.slow
def test_a_thousand_shards_are_listed_and_not_asked_for_one_by_one(s3_store, s3_uri, ustar):
    plain_client, prefix = client_of(s3_store["environment"]), s3_uri.removeprefix(f"s3://{BUCKET}/")
    data = ustar([("x.txt", b"x")])
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: plain_client.put_object(Bucket=BUCKET, Key=f"{prefix}/t-{i:06d}.tar", Body=data), range(1010)))
    for word in (s3_uri, f"{s3_uri}/*.tar", f"{s3_uri}/t-{{000000..001009}}.tar"):
        with requests_counted() as counts:
            dataset = survey_dataset(word)
            listing = dataset.listing()
            assert [listing.num_bytes(shard.name) for shard in dataset.shards] == [10240] * 1010
        assert counts.total() < 14, (word, counts)


def test_few_shards_among_much_else_are_asked_for(shards):
    _, uri = shards("t-000.tar", "t-001.tar", "t-002.tar")
    with requests_counted() as counts:
        assert len(open_dataset(f"{uri}/t-{{000..002}}.tar").shards) == 3
    assert counts["HeadObject"] <= 4
    assert counts["ListObjectsV2"] <= 1  # whether something is named like the pattern


def test_nested_indices_are_read_in_the_order_of_their_folders(tmp_path, build, image_pairs, upload):
    for number, part in zip(itertools.count(), ("b/1", "a/2", "a/10"), strict=False):
        build(image_pairs(3, name=f"s{number}"), tmp_path / "parts" / part, "mds", shard_samples=2)
    for path in (tmp_path / "parts").rglob("shardtools.*"):
        path.unlink()
    names = [shard.name for shard in open_dataset(upload(tmp_path / "parts", "parts")).shards]
    assert names == [f"{part}/shard.0000{i}.mds" for part in ("a/10", "a/2", "b/1") for i in (0, 1)]
