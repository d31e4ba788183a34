"""Datasets in a bucket are shown and extracted as those in a folder; stops an ``inspect`` that fetches whole shards, and a wrong byte."""

import io
import json
import subprocess
import sys
import tarfile

import pytest
from botocore.response import StreamingBody
from s3_stores import BUCKET, client_of, use

from shardtools.datasets import open_dataset
from shardtools.errors import DamagedShardError, StorageError, UsageError
from shardtools.explore.describe import describe
from shardtools.explore.extract import extract
from shardtools.explore.show import head
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds

MEBIBYTE = 1 << 20


@pytest.fixture
def put(s3_store, s3_uri):
    plain, prefix = client_of(s3_store["environment"]), s3_uri.removeprefix(f"s3://{BUCKET}/")
    return lambda name, data: plain.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=data)


@pytest.fixture
def fill(put):
    def store(folder):
        for path in folder.rglob("*"):
            if path.is_file():
                put(path.relative_to(folder), path.read_bytes())

    return store


@pytest.fixture
def fetched(monkeypatch):
    """How many bytes of objects came since it was last asked."""
    num_bytes = [0]
    read = StreamingBody.read

    def counted(self, *arguments):
        data = read(self, *arguments)
        num_bytes[0] += len(data)
        return data

    monkeypatch.setattr(StreamingBody, "read", counted)

    def since():
        num_bytes[0], last = 0, num_bytes[0]
        return last

    return since


def shardtools(*arguments):
    done = subprocess.run([sys.executable, "-m", "shardtools", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("shard_format", ["wds", "mds", Mds(compression="zstd")], ids=["wds", "mds", "zstd"])
def test_files_come_back_byte_for_byte(build, image_pairs, tmp_path, fill, s3_uri, shard_format):
    source = image_pairs(31)
    build(source, tmp_path / "data", shard_format, shard_samples=7)
    fill(tmp_path / "data")
    extract(open_dataset(s3_uri), str(tmp_path / "out"))
    assert files(tmp_path / "out") == files(source)


@pytest.mark.parametrize("arguments", [["--head", "3"], ["--key", "dogs/0004"]], ids=["head", "key"])
def test_the_commands_print_what_they_print_for_a_folder(build, image_pairs, tmp_path, fill, s3_uri, arguments):
    build(image_pairs(9), tmp_path / "data", shard_samples=4)
    fill(tmp_path / "data")
    printed = []
    for uri in (str(tmp_path / "data"), s3_uri):
        printed.append(
            {name: value for name, value in json.loads(shardtools("inspect", uri, *arguments, "--json")).items() if name != "uri"}
        )
    assert printed[0] == printed[1]


@pytest.fixture(params=[Wds(), pytest.param(Mds(), marks=pytest.mark.slow)], ids=["wds", "mds"])
def large(request, build, rows, tmp_path, fill, s3_uri):
    """200 samples of 200 KB in one shard of 40 MB, and a first one of 3 MB."""
    values = [b"%06d" % 0 * 500_000, *(b"%06d" % i * 33_000 for i in range(1, 201))]
    source = rows([b"k%03d" % i for i in range(201)], {"bin": values}, {"bin": "bytes"})
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "large", request.param, source=source)
    fill(tmp_path / "large")
    return open_dataset(s3_uri), open_dataset(str(tmp_path / "large"))


def test_the_first_samples_cost_a_part_of_the_shard(large, fetched):
    there, here = large
    assert list(head(there, 3)) == list(head(here, 3))
    assert 0 < fetched() < 5 * MEBIBYTE


def test_every_sample_of_a_large_shard(large, fetched):
    there, here = large
    for (_, one), (_, other) in zip(there.all_samples(), here.all_samples(), strict=True):
        assert (one.key, one.offset) == (other.key, other.offset)
        assert {name: bytes(value) for name, value in one.values.items()} == {name: bytes(value) for name, value in other.values.items()}
    assert fetched() < 1.1 * there.shards[0].num_bytes


def test_samples_that_are_kept_stay_what_they_are(large):
    there, here = large
    kept = list(there.all_samples())
    assert [bytes(sample.values["bin"]) for _, sample in kept] == [bytes(sample.values["bin"]) for _, sample in here.all_samples()]


def test_rows_that_have_not_come_yet_are_not_taken_for_zeros(build, rows, tmp_path, fill, s3_uri):
    numbers = list(range(1, 200_001))
    source = rows([b"%d" % i for i in numbers], {"n": numbers}, {"n": "int"})
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "rows", Mds(key_column=None), source=source)
    fill(tmp_path / "rows")
    found = [int.from_bytes(sample.values["n"], "little") for _, sample in open_dataset(s3_uri).all_samples()]
    assert found == numbers


def test_the_fields_of_foreign_shards_cost_little(put, s3_uri, fetched):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(64):
            info = tarfile.TarInfo(f"{i:03d}.bin")
            info.size = MEBIBYTE
            tar.addfile(info, io.BytesIO(bytes([i]) * MEBIBYTE))
    put("x.tar", archive.getvalue())
    found = describe(open_dataset(s3_uri))
    assert (found.num_samples, [field.name for field in found.fields]) == (None, ["bin"])
    assert fetched() < 17 * MEBIBYTE


@pytest.mark.parametrize("num_left", [0, 511, 1536, 3 * MEBIBYTE + 100, 5 * MEBIBYTE])
def test_a_cut_shard_gives_what_is_before_the_cut_and_then_its_fault(put, s3_uri, tmp_path, ustar, num_left):
    data = ustar([(f"{i:04d}.bin", b"%08d" % i * 1000) for i in range(700)])
    put("x.tar", data[:num_left])
    (tmp_path / "x.tar").write_bytes(data[:num_left])
    outcomes = []
    for uri in (s3_uri, str(tmp_path)):
        keys = []
        with pytest.raises(DamagedShardError) as caught:
            for _, sample in open_dataset(uri).all_samples():
                keys.append(sample.key)
        outcomes.append((keys, str(caught.value), caught.value.offset))
    assert outcomes[0] == outcomes[1]


def test_a_shard_that_is_gone_is_one_sentence(build, image_pairs, tmp_path, put, s3_uri, one_sentence):
    build(image_pairs(3), tmp_path / "data")
    put("shardtools.manifest", (tmp_path / "data/shardtools.manifest").read_bytes())
    with pytest.raises(StorageError) as caught:
        list(open_dataset(s3_uri).all_samples())
    assert "train-000000.tar" in one_sentence(caught.value)


def test_files_are_extracted_to_this_machine_alone(build, image_pairs, tmp_path, s3_uri, one_sentence, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(image_pairs(3), tmp_path / "data")
    with pytest.raises(UsageError) as caught:
        extract(open_dataset(str(tmp_path / "data")), f"{s3_uri}/out")
    assert "folder of this machine" in one_sentence(caught.value)
    assert not (tmp_path / "s3:").exists()


def test_whoever_may_only_read_can_look_and_extract(build, image_pairs, tmp_path, fill, s3_uri, s3_store, monkeypatch):
    source = image_pairs(3)
    build(source, tmp_path / "data")
    fill(tmp_path / "data")
    with open(f"{s3_store['home']}/users.json") as file:
        user = json.load(file)["reader"]
    credentials = {"AWS_ACCESS_KEY_ID": user["accessKey"], "AWS_SECRET_ACCESS_KEY": user["secretKey"]}
    use({**s3_store["environment"], **credentials}, monkeypatch)
    for arguments in (["inspect", s3_uri, "--head", "1"], ["extract", s3_uri, str(tmp_path / "out")]):
        printed = shardtools(*arguments)
        assert not any(secret in printed for secret in credentials.values())
    assert files(tmp_path / "out") == files(source)
