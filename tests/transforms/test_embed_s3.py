"""``--embed`` with media in a bucket; stops other bytes than from a folder, one request after the other, and a way out of the prefix."""

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from s3_stores import client_of
from step_orders import pack, tar_samples

from shardtools.storage.s3 import S3
from shardtools.storage.s3 import _whole as whole_module

JPEG = b"\xff\xd8\xff"


@pytest.fixture
def store(s3_uri: str, s3_store: dict[str, Any]) -> Any:
    """Puts objects below the test's own prefix."""
    bucket, _, prefix = s3_uri.removeprefix("s3://").partition("/")
    client = client_of(s3_store["environment"])

    def put(name: str, data: bytes) -> None:
        client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=data)

    return put


def media(count: int) -> dict[str, bytes]:
    numbers = random.Random(5)
    return {f"img/{i:03d}.jpg": JPEG + numbers.randbytes(numbers.randint(0, 2000)) for i in range(count)}


def lines_of(rows: list[Any]) -> bytes:
    return b"".join(json.dumps({"image": row, "n": i}).encode() + b"\n" for i, row in enumerate(rows))


def test_a_bucket_gives_the_bytes_that_a_folder_gives(store: Any, s3_uri: str, tree: Any, tmp_path: Path, digests: Any) -> None:
    files = media(40)
    source = tree({"d.jsonl": lines_of(sorted(files)), **files})
    for name, data in files.items():
        store(f"src/{name}", data)
    store("src/d.jsonl", (source / "d.jsonl").read_bytes())
    pack(source / "d.jsonl", tmp_path / "local", embed="image")
    pack(f"{s3_uri}/src/d.jsonl", tmp_path / "both", embed="image")
    pack(source / "d.jsonl", tmp_path / "media", embed="image", media_root=f"{s3_uri}/src/")
    pack(f"{s3_uri}/src/d.jsonl", tmp_path / "records", embed="image", media_root=source)
    wanted = {name: digest for name, digest in digests(tmp_path / "local").items() if name.endswith(".tar")}
    for name in ("both", "media", "records"):
        assert {file: digest for file, digest in digests(tmp_path / name).items() if file.endswith(".tar")} == wanted


def test_what_is_not_below_the_prefix_is_a_bad_sample(store: Any, s3_uri: str, tree: Any, tmp_path: Path) -> None:
    store("m/good.jpg", JPEG + b"good")
    store("m/sub/good.jpg", JPEG + b"sub")
    store("secret.jpg", JPEG + b"secret")
    store("m2/secret.jpg", JPEG + b"secret")
    bucket = s3_uri.removeprefix("s3://").partition("/")[0]
    good = ["good.jpg", "sub/../good.jpg", f"{s3_uri}/m/sub/good.jpg", "./sub//good.jpg"]
    outside = [
        "../secret.jpg",
        f"{s3_uri}/secret.jpg",
        f"{s3_uri}/m2/secret.jpg",
        f"s3://{bucket}x/m/good.jpg",
        "/etc/a.jpg",
        "http://h/a.jpg",
    ]
    source = tree({"d.jsonl": lines_of([*good, *outside, "none.jpg", "sub.jpg", "a\\b.jpg", "a\0.jpg", ""])})
    result = pack(source / "d.jsonl", tmp_path / "out", embed="image=jpg", media_root=f"{s3_uri}/m", max_bad="100%")
    assert dict(result.manifest.ledger.rejects) == {"media-outside": 6, "media-missing": 2, "media-unreadable": 2, "no-media": 1}
    found = [sample["jpg"][3:] for sample in tar_samples(tmp_path / "out").values()]
    assert found == [b"good", b"good", b"sub", b"sub"]


def test_many_objects_are_asked_for_at_a_time(store: Any, s3_uri: str, tree: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = media(120)
    for name, data in files.items():
        store(name, data)
    source = tree({"d.jsonl": lines_of(sorted(files))})
    at_once, most, lock = {"look": 0, "read": 0}, {"look": 0, "read": 0}, threading.Lock()
    real_entry, real_whole = S3.entry, whole_module._whole

    def counted(kind: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            with lock:
                at_once[kind] += 1
                most[kind] = max(most[kind], at_once[kind])
            time.sleep(0.01)
            try:
                return function(*arguments)
            finally:
                with lock:
                    at_once[kind] -= 1

        return call

    monkeypatch.setattr(S3, "entry", counted("look", real_entry))
    monkeypatch.setattr(whole_module, "_whole", counted("read", real_whole))
    pack(source / "d.jsonl", tmp_path / "out", embed="image", media_root=s3_uri)
    assert [sample["jpg"] for sample in tar_samples(tmp_path / "out").values()] == [files[name] for name in sorted(files)]
    assert most["look"] > 4
    assert most["read"] > 4
