"""Loops over buckets as users write them, and ours. Run by ``_peers.main``; what a loop found is left in ``told.json``."""

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from _loader_peers import tell

Facts = dict[str, int]


def objects(source: str, destination: str) -> Callable[[], None]:
    """``source``: URI::endpoint::count. One GET after the other, into a tar."""
    import boto3

    uri, endpoint, count = source.split("::")
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    s3 = boto3.client("s3", endpoint_url=endpoint)

    def loop() -> None:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
        keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        with tarfile.open(Path(destination, "all.tar"), "w") as archive:
            for key in keys[: int(count)]:
                data = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                member = tarfile.TarInfo(key)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))

    return loop


def read_ours(source: str, destination: str) -> Callable[[], None]:
    from shardtools.loaders import LoaderOptions, open_dataset

    uri = source.partition("::")[0]

    def loop() -> None:
        options = LoaderOptions(cache_folder=f"{destination}/cache")
        _tell(destination, open_dataset(uri, batch_size=32, options=options), "jpg")

    return loop


def read_webdataset(source: str, destination: str) -> Callable[[], None]:
    import boto3
    import webdataset

    uri, aws = source.split("::")
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")

    def loop() -> None:
        found = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix + "/")["Contents"]
        urls = [f"pipe:{aws} s3 cp s3://{bucket}/{each['Key']} -" for each in found if each["Key"].endswith(".tar")]
        _tell(destination, webdataset.WebDataset(urls, shardshuffle=False), "jpg")

    return loop


def read_streaming(source: str, destination: str) -> Callable[[], None]:
    os.environ["TMPDIR"] = destination
    import streaming

    uri = source.partition("::")[0]

    def loop() -> None:
        dataset = streaming.StreamingDataset(remote=uri, local=f"{destination}/local", batch_size=32, shuffle=False)
        _tell(destination, dataset, "jpg")

    return loop


def told(destination: Path) -> Facts:
    (found,) = json.loads((destination / "told.json").read_text())
    return dict(found)


def _tell(destination: str, samples: Iterable[Any], field: str) -> None:
    num_samples = num_bytes = 0
    for sample in samples:
        num_samples += 1
        num_bytes += len(sample[field])
    tell(destination, [{"samples": num_samples, "bytes": num_bytes}])


PEERS = {"objects": objects, "read-ours": read_ours, "read-webdataset": read_webdataset, "read-streaming": read_streaming}


if __name__ == "__main__":
    from _peers import main

    main(PEERS)
