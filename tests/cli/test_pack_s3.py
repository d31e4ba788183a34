"""Stops ``pack s3://…`` from ending in a traceback, from telling a secret, and from leaving a dataset when it is interrupted."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from s3_stores import client_of, use
from watching import wait_until

import shardtools
from shardtools.errors import UsageError
from shardtools.storage import open_storage

COMMAND = [sys.executable, "-m", "shardtools"]
SERIAL = ["--engine", "serial"]
"""For tests to which workers make no difference."""
MIB = 1 << 20


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}


MEASURED = """
import re, sys
from shardtools.cli import main
try:
    main()
except SystemExit as ended:
    print(ended.code or 0, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
"""


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=env or environment(), capture_output=True, text=True)


def objects(client: Any, uri: str) -> dict[str, bytes]:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    found = client.list_objects_v2(Bucket=bucket, Prefix=prefix + "/").get("Contents", ())
    return {one["Key"][len(prefix) + 1 :]: client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found}


def reader_of(store: dict[str, Any]) -> dict[str, str]:
    """The environment of the user who may only read."""
    user = json.loads((Path(store["home"]) / "users.json").read_text())["reader"]
    return {**store["environment"], "AWS_ACCESS_KEY_ID": user["accessKey"], "AWS_SECRET_ACCESS_KEY": user["secretKey"]}


def files(folder: Path, count: int, num_bytes: int) -> None:
    numbers = random.Random(5)
    (folder / "src").mkdir()
    for i in range(count):
        (folder / "src" / f"{i:02d}.bin").write_bytes(numbers.randbytes(num_bytes))


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with a source ``src``."""
    files(tmp_path, 40, 30_000)
    return tmp_path


def test_a_bucket_takes_the_place_of_a_folder(place, s3_uri, s3_store):
    local = run(place, "pack", "src", "local", "--to", "wds", "--shard-size", "100KiB", *SERIAL)
    assert local.returncode == 0, local.stderr
    done = run(place, "pack", "src", s3_uri + "/", "--to", "wds", "--shard-size", "100KiB", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == local.stdout.splitlines()[:3]
    expected = {str(path.relative_to(place / "local")): path.read_bytes() for path in (place / "local").rglob("*") if path.is_file()}
    assert objects(client_of(s3_store["environment"]), s3_uri) == expected
    again = run(place, "pack", "src", s3_uri, "--to", "wds", "--shard-size", "100KiB", *SERIAL)
    assert again.returncode == 0 and "already complete" in again.stderr
    other = run(place, "pack", "src", s3_uri, "--to", "wds", "--shard-size", "200KiB", *SERIAL)
    assert other.returncode == 2 and f"expected {s3_uri} to be empty" in other.stderr


def test_the_endpoint_of_the_command_line_beats_that_of_the_environment(place, s3_uri, s3_store):
    wrong = {**environment(), "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    wrong |= dict.fromkeys(("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"), "http://127.0.0.1:9")
    done = run(place, "pack", "src", s3_uri, "--to", "mds", "--endpoint-url", s3_store["endpoint"], env=wrong)
    assert done.returncode == 0, done.stderr
    assert "index.json" in objects(client_of(s3_store["environment"]), s3_uri)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "http://", "http://[::1", "http://host/?a=b"])
@pytest.mark.parametrize("command", ["pack", "verify", "inspect", "extract", "index", "merge", "bench"])
def test_an_endpoint_that_is_none_is_refused_by_every_command(monkeypatch, capfd, url, command):
    from shardtools import cli

    monkeypatch.setattr(sys, "argv", ["shardtools", command, "a", "b", "--endpoint-url", url])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    shown = capfd.readouterr().err
    assert caught.value.code == 2 and shown.startswith(f"error: expected --endpoint-url as http://HOST:PORT or https://HOST, got '{url}'")


def test_an_endpoint_with_a_password_is_refused_without_showing_it(tmp_path):
    done = run(tmp_path, "pack", "src", "s3://b/x", "--to", "wds", "--endpoint-url", "https://me:hunter2@host")
    assert done.returncode == 2 and "hunter2" not in done.stderr and "without a user" in done.stderr


def test_a_user_who_may_not_write_is_told_so_in_one_sentence(place, s3_uri, s3_store, monkeypatch):
    use(reader_of(s3_store), monkeypatch)
    done = run(place, "pack", "src", s3_uri, "--to", "wds", *SERIAL)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
    assert f"could not create {s3_uri}/" in done.stderr and "AccessDenied" in done.stderr and "permission" in done.stderr


def test_missing_credentials_are_one_sentence(place, s3_uri, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    done = run(place, "pack", "src", s3_uri, "--to", "wds", *SERIAL)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
    assert f"could not read {s3_uri}/shardtools.manifest: no credentials" in done.stderr


@pytest.mark.parametrize("uri", ["s3://", "s3://bucket/a/../b", "gs://b/x", "s3:/b/x"])
@pytest.mark.parametrize("words", [["src", "URI"], ["URI", "out"]], ids=["destination", "source"])
def test_a_place_that_cannot_be_is_one_sentence(place, uri, words):
    """A mistyped bucket is no folder of that name on this machine."""
    done = run(place, "pack", *(uri if word == "URI" else word for word in words), "--to", "wds", *SERIAL)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "s3://bucket/prefix" in done.stderr and uri in done.stderr
    assert [path.name for path in place.iterdir()] == ["src"]


@pytest.mark.parametrize("uri", ["s3:///x", "S3://b/x", "s3a://b/x", "local://b/x", "s3:b/x", "s3//b/x", "S3:/b/x"])
def test_no_storage_is_opened_for_a_mistyped_place(uri):
    with pytest.raises(UsageError, match=r"expected .*s3://bucket/prefix.*, got .*" + re.escape(uri)):
        open_storage(uri)


@pytest.mark.parametrize("path", ["./s3:/b/x", "s3/b/x", "file:///s3:/b", "s3.d/x"])
def test_a_folder_may_have_such_a_name(path):
    assert open_storage(path).is_local


def test_no_credential_is_written_or_said(place, s3_uri, s3_store):
    client = client_of(s3_store["environment"])
    secrets = [s3_store["environment"][name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    (place / "src" / "bad.jpg").write_bytes(b"none")
    order = ["pack", "src", s3_uri, "--to", "mds", "--group", "file", "--json", *SERIAL]
    said = [run(place, *order), run(place, *order, "--max-bad", "1"), run(place, *order, "--max-bad", "1")]
    said.append(run(place, "pack", "src", "s3://no-such-bucket-here/x", "--to", "wds", "--group", "file", *SERIAL))
    assert [done.returncode for done in said][1:] == [0, 0, 3]
    stored = b"".join(objects(client, s3_uri).values())
    for secret in secrets:
        assert secret.encode() not in stored
        assert all(secret not in done.stdout + done.stderr for done in said)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_run_leaves_no_dataset_and_is_gone_on_with(tmp_path, s3_uri, s3_store, number):
    files(tmp_path, 16, 4 * MIB)
    client = client_of(s3_store["environment"])
    for attempt in range(5):  # the run may end before the signal comes
        uri = f"{s3_uri}/{attempt}"
        order = [*COMMAND, "pack", "src", uri, "--to", "wds", "--shard-size", "20MiB", "--workers", "2"]
        code, stderr = ended(order, tmp_path, number, lambda uri=uri: any(name.endswith(".tar") for name in names(client, uri)))
        if code:
            break
    assert code == (130 if number == signal.SIGINT else -signal.SIGTERM), stderr
    told = [line for line in stderr.splitlines() if not line.startswith("note: ")]
    assert [line[:18] for line in told] == ["error: interrupted"] * (number == signal.SIGINT)
    assert "shardtools.manifest" not in names(client, uri)
    done = subprocess.run(order, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run(tmp_path, "pack", "src", "local", "--to", "wds", "--shard-size", "20MiB").returncode == 0
    expected = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "local").glob("[!.]*")}
    found = {name: hashlib.sha256(data).hexdigest() for name, data in objects(client, uri).items() if "/" not in name}
    assert found == expected


def ended(command: Sequence[str], folder: Path, number: int, is_begun: Callable[[], bool]) -> tuple[int, str]:
    """Exit code and standard error of a command that gets a signal once it has begun."""
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or is_begun())
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


def names(client: Any, uri: str) -> list[str]:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    found = client.list_objects_v2(Bucket=bucket, Prefix=prefix + "/").get("Contents", ())
    return [one["Key"][len(prefix) + 1 :] for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_memory_does_not_grow_with_the_shard(tmp_path, s3_uri, format_):
    folder = tmp_path / "src"
    folder.mkdir()
    for i in range(150):
        with (folder / f"{i:03d}.bin").open("wb") as file:
            file.truncate(8 * MIB)  # sparse
    arguments = ["pack", "src", s3_uri, "--to", format_, "--shard-size", "2GiB", "--engine", "serial"]
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    *_, exit_code, peak = done.stderr.split()
    assert (done.returncode, exit_code) == (0, "0"), done.stderr
    assert int(peak) < 500_000
