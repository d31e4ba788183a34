"""Stops a writer that loses bytes at the edges of parts, needs too many parts, or memory that grows with the object."""

import random
import subprocess
import sys

import pytest

from shardtools.storage import open_storage
from shardtools.storage.s3 import S3, _copy, _reading, _writer

MIB = 1 << 20
LARGEST = 5 << 40
PROGRAM = """
import re, sys
from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace
from shardtools.storage.s3 import S3, _attempts, _reading

GIB = 1 << 30
PIECE = bytes(_reading.RANGE_BYTES)

class Swallowing:
    sizes = []
    def create_multipart_upload(self, **asked):
        return {"UploadId": "1", "ChecksumType": "FULL_OBJECT"}
    def upload_part(self, Body, **asked):
        self.sizes.append(len(Body))
        return {"ETag": '"1"', "ChecksumCRC32": "x"}
    def complete_multipart_upload(self, MultipartUpload, **asked):
        assert len(MultipartUpload["Parts"]) == len(self.sizes)
        return {"ETag": '"1"'}
    def head_object(self, **asked):
        return {"ETag": '"1"', "ContentLength": 50 * GIB, "LastModified": datetime.now(UTC)}
    def get_object(self, Range, **asked):
        begin, end = map(int, Range.removeprefix("bytes=").split("-"))
        return {"ETag": '"1"', "ContentLength": end + 1 - begin, "Body": Body(end + 1 - begin)}

class Body:
    def __init__(self, num_bytes): self.num_bytes = num_bytes
    # A copy, as what comes from a connection is.
    def read(self): return bytes(memoryview(PIECE)[: self.num_bytes])

swallowing = Swallowing()
swallowing.meta = SimpleNamespace(endpoint_url="http://swallowing")
_attempts.client = lambda: swallowing
storage = S3("s3://bucket/data")
if sys.argv[1] == "write":
    writer, block = storage.writer("x"), bytes(4 << 20)
    for _ in range(50 * 256):
        writer.write(block)
    writer.finish()
    assert sum(swallowing.sizes) == 50 * GIB and len(swallowing.sizes) < 10_000
else:
    total = 0
    with storage.open("x") as file:
        while piece := file.read(64 << 20):
            total += len(piece)
    assert total == 50 * GIB
# Not ru_maxrss, which begins with that of the process it was forked from.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""


@pytest.mark.parametrize("num_bytes", [0, 8 * MIB - 1, 8 * MIB, pytest.param(8 * MIB + 1, marks=pytest.mark.slow), 16 * MIB + 1])
def test_objects_of_sizes_beside_those_of_parts_come_back_whole(s3_uri, tmp_path, num_bytes):
    data = random.Random(num_bytes).randbytes(num_bytes)
    storage = open_storage(s3_uri)
    writer = storage.writer("written")
    for begin in range(0, num_bytes, 3_000_000):
        writer.write(data[begin : begin + 3_000_000])
    writer.finish()
    storage.put("put", data)
    for name in ("written", "put"):
        assert storage.get(name) == data
        storage.fetch(name, str(tmp_path / name))
        assert (tmp_path / name).read_bytes() == data
        assert storage.move(name, f"moved/{name}") and storage.num_bytes(f"moved/{name}") == num_bytes


def test_ten_thousand_parts_hold_the_largest_object_a_store_takes():
    sizes = [_writer.part_bytes(index) for index in range(10_000)]
    assert sum(sizes) >= LARGEST and min(sizes) >= 5 * MIB
    needed = next(index for index, total in enumerate(running(sizes), 1) if total >= 50 << 30)
    assert max(sizes[:needed]) <= 64 * MIB, "six parts are held at a time"


def running(sizes):
    total = 0
    for size in sizes:
        total += size
        yield total


@pytest.mark.parametrize("num_bytes", [(1 << 30) + 1, 50 << 30, LARGEST])
def test_ten_thousand_parts_are_enough_to_copy(num_bytes):
    part = _copy.part_bytes(num_bytes)
    assert -(-num_bytes // part) <= 10_000 and 5 * MIB <= part <= 5 << 30


def test_a_large_object_is_copied_by_parts(s3_uri, monkeypatch):
    monkeypatch.setattr(_copy, "_AT_ONCE_BYTES", 6 * MIB)
    monkeypatch.setattr(_copy, "_PART_BYTES", 5 * MIB)
    data = random.Random(6).randbytes(12 * MIB + 5)
    storage = S3(s3_uri)
    storage.put("x", data)
    assert storage.move("x", "y") is True
    assert storage.get("y") == data and storage.get("x") is None


def test_a_checksum_of_the_whole_is_kept_by_the_store(s3_uri):
    storage = S3(s3_uri)
    storage.put("x", random.Random(7).randbytes(9 * MIB))
    key = f"{s3_uri.removeprefix('s3://tests/')}/x"
    assert len(_reading.find("tests", key)[0].checksum) == 8


@pytest.mark.slow
@pytest.mark.parametrize("what", ["write", "read"])
def test_fifty_gibibytes_need_less_than_five_hundred_megabytes(what):
    done = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500
    print(f"{what}: {done.stdout.strip()} MiB")
