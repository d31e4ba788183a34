"""Inputs in a bucket for tests: a local tree put there by plain boto3, with the names that its files have."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from s3_stores import BUCKET, client_of


class Bucket:
    """One empty place in the store."""

    def __init__(self, uri: str, environment: dict[str, str]) -> None:
        self.uri = uri
        self.prefix = uri.removeprefix(f"s3://{BUCKET}/")
        self.client = client_of(environment)

    def put(self, objects: Mapping[str, bytes], below: str = "src") -> str:
        """Stores the objects and returns the address of the folder that they are in."""

        def store(item: tuple[str, bytes]) -> None:
            self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{below}/{item[0]}", Body=item[1])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(store, objects.items()))
        return f"{self.uri}/{below}"

    def delete(self, name: str, below: str = "src") -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{below}/{name}")

    def copy_of(self, folder: Path, below: str = "src") -> str:
        """Stores every file of a folder."""
        return self.put({os.path.relpath(path, folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}, below)


@pytest.fixture
def bucket(s3_uri: str, s3_store: dict[str, Any]) -> Bucket:
    return Bucket(s3_uri, s3_store["environment"])


@pytest.fixture
def same_as_local(
    bucket: Bucket, build: Callable[..., Any], digests: Callable[[Path], dict[str, str]], tmp_path: Path
) -> Callable[..., dict[str, str]]:
    """Packs a folder and its copy in the bucket; every published file of the two is the same. Returns their digests."""

    def check(folder: Path, format_: str = "wds", **options: Any) -> dict[str, str]:
        build(folder, tmp_path / f"local-{format_}", format_, **options)
        build(bucket.copy_of(folder), tmp_path / f"bucket-{format_}", format_, **options)
        expected = digests(tmp_path / f"local-{format_}")
        assert digests(tmp_path / f"bucket-{format_}") == expected
        assert any(name.endswith((".tar", ".mds")) for name in expected)
        return expected

    return check
