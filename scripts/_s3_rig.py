"""What the comparisons over object storage stand on: a store in memory, and the `aws` program in an environment of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _inputs import SCRIPTS
from _measure import say

BUCKET = "bench"
_IN_MEMORY = Path("/dev/shm")
_UPLOADS_AT_ONCE = 16


class Rig:
    """A store on loopback whose objects lie in memory, so that no disk is measured; this process and its children speak to it."""

    def __init__(self) -> None:
        self._held = ExitStack()
        folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="s3-bench-", dir=_IN_MEMORY)))
        command = [sys.executable, str(SCRIPTS / "s3_server.py"), "serve", "--home", str(folder)]
        server = self._held.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert server.stdin is not None and server.stdout is not None
        self._held.callback(server.stdin.close)  # by which it ends
        state = json.loads(server.stdout.readline())
        self.endpoint: str = state["endpoint"]
        os.environ.update(state["environment"])
        self._s3 = client()
        self._s3.create_bucket(Bucket=BUCKET)

    def close(self) -> None:
        self._held.close()

    def put(self, objects: Iterable[tuple[str, bytes]]) -> None:
        def put_one(item: tuple[str, bytes]) -> None:
            self._s3.put_object(Bucket=BUCKET, Key=item[0], Body=item[1])

        with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
            for _ in pool.map(put_one, objects):
                pass

    def upload(self, folder: Path, prefix: str) -> str:
        """Every file of a folder, as objects below the prefix, whose URI this returns."""
        self.put((f"{prefix}/{path.relative_to(folder)}", path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file())
        return f"s3://{BUCKET}/{prefix}"

    def empty(self, prefix: str) -> None:
        for entry in list(self._entries(prefix)):
            self._s3.delete_object(Bucket=BUCKET, Key=entry["Key"])

    def sizes(self, prefix: str, suffix: str) -> list[tuple[str, int]]:
        """Name and length of the objects of that ending."""
        found = ((entry["Key"].removeprefix(prefix + "/"), entry["Size"]) for entry in self._entries(prefix))
        return sorted((name, num_bytes) for name, num_bytes in found if name.endswith(suffix))

    def _entries(self, prefix: str) -> Iterator[Any]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix + "/")
        return (entry for page in pages for entry in page.get("Contents", ()))

    def through_proxy(self, latency_ms: int) -> str:
        """Another endpoint of the same store, where every request waits so long."""
        command = [sys.executable, str(SCRIPTS / "s3_proxy.py"), "--upstream", self.endpoint, "--latency-ms", str(latency_ms)]
        proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._held.callback(proxy.wait)
        self._held.callback(proxy.send_signal, signal.SIGTERM)
        assert proxy.stdout is not None
        endpoint: str = json.loads(proxy.stdout.readline())["endpoint"]
        return endpoint


def client() -> Any:
    import boto3

    # Of its own session: the library's common one keeps the credentials of the store before.
    return boto3.session.Session().client("s3")


def aws_program(work: Path) -> str:
    """The path of `aws`, installed once in a virtual environment of its own: its botocore is not that of the tests."""
    folder = work / "aws"
    program = folder / "bin" / "aws"
    if not program.exists():
        say("installing awscli")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", "awscli"], check=True, stdout=sys.stderr)
    return str(program)
