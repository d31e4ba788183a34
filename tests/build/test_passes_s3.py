"""Stops a build in passes into a bucket from giving other bytes than one into a folder, and from leaving its spills there."""

import hashlib

import pytest
from s3_stores import client_of
from scattering import SPLIT, make_records, pack, write_records

from shardtools import partitions as partitions_module
from shardtools.build.run import Listener
from shardtools.engines.processes import Processes
from shardtools.formats.mds import Mds
from shardtools.selection import Selection

KINDS = {
    "shuffle": {"seed": 1},
    "all": {"seed": 1, "selection": Selection(limit=500, dedup="key", split=SPLIT), "format_": Mds()},
}


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


def stored(store, uri: str) -> dict[str, str]:
    """SHA-256 of every object at a URI, by a plain client."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    s3 = client_of(store["environment"])
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
    return {key[len(prefix) + 1 :]: hashlib.sha256(s3.get_object(Bucket=bucket, Key=key)["Body"].read()).hexdigest() for key in keys}


@pytest.mark.parametrize(("kind", "workers"), [("shuffle", None), ("all", 2)])
def test_a_bucket_holds_what_a_folder_holds(tmp_path, digests, s3_store, s3_uri, kind, workers):
    source = write_records(tmp_path / "src", make_records(700))
    pack(source, tmp_path / "out", **KINDS[kind])
    pack(source, s3_uri, **KINDS[kind], engine=workers and Processes(workers))
    assert stored(s3_store, s3_uri) == digests(tmp_path / "out")


def test_an_interrupted_run_is_gone_on_with(tmp_path, digests, s3_store, s3_uri):
    source = write_records(tmp_path / "src", make_records(700))
    pack(source, tmp_path / "out", seed=1)
    seen: list[int] = []

    def stop(progress) -> None:
        seen.append(progress.num_samples)
        if sum(seen) > 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(source, s3_uri, seed=1, listener=Listener(on_progress=stop))
    assert any("/spills/" in name for name in stored(s3_store, s3_uri))
    pack(source, s3_uri, seed=1)
    assert stored(s3_store, s3_uri) == digests(tmp_path / "out")
