"""A bucket given to the doctor is asked how it answers; stops a check-up that knows nothing of remote data, or waits for it for minutes."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from s3_stores import client_of

from shardtools.bench.doctor.bucket import Bucket, ask, bucket_findings

ROOT = Path(__file__).parents[2]


def sentence(bucket: Bucket) -> tuple[str, str]:
    (finding,) = bucket_findings(bucket)
    return finding.level, finding.sentence


def test_reads_are_timed(s3_uri: str, s3_store: dict[str, Any]) -> None:
    _, _, bucket, prefix = s3_uri.split("/", 3)
    client_of(s3_store["environment"]).put_object(Bucket=bucket, Key=f"{prefix}/a.bin", Body=b"x" * 10_000)
    found = ask(s3_uri)
    assert found.error is None and found.list_seconds is not None
    assert len(found.read_seconds) == 7 and min(found.read_seconds) > 0


def test_an_empty_prefix_is_told(s3_uri: str) -> None:
    assert sentence(ask(s3_uri)) == ("fault", f"{s3_uri} can be reached and holds nothing: correct the prefix.")


@pytest.mark.usefixtures("s3_uri")
def test_a_bucket_that_is_not_there_is_told() -> None:
    level, words = sentence(ask("s3://no-such-bucket-at-all/x"))
    assert level == "fault" and words.startswith("s3://no-such-bucket-at-all/x cannot be read: ")


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        ((0.004, 0.005, 0.009), "note", "in 5.0 ms (4.0 to 9.0), so a worker that reads object after object gets 200 of them"),
        ((0.08, 0.1, 0.3), "warning", "in 100 ms (80 to 300), so a worker that reads object after object gets 10 of them"),
    ],
)
def test_what_the_time_of_a_read_means(seconds: tuple[float, ...], level: str, words: str) -> None:
    found = sentence(Bucket("s3://a/b", 0.2, seconds))
    assert found[0] == level and words in found[1]


def test_a_store_that_never_answers_is_given_up() -> None:
    script = "from shardtools.bench.doctor.bucket import ask; print(ask('s3://a/b', 1.0).error)"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "it did not answer within 1 s; check the endpoint and the network\n", done.stderr
    assert time.monotonic() - began < 30
