"""Stops a program that an interrupt does not end, because it waits for a server that does not answer."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

PROGRAM = """
import sys
from shardtools.storage.s3 import S3, _attempts, _client
storage = S3("s3://bucket/data")
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
FOUND = 'from shardtools.storage.s3 import _reading; list(_reading.pieces(_reading.Object("bucket", "x", 1 << 30, "1")))'
WRITE = """from shardtools.storage.s3 import _multipart
    writer = storage.writer("x")
    writer._upload = _multipart.Upload("bucket", "x", "1", False)
    try:
        for _ in range(20):
            writer.write(bytes(8 << 20))
    except BaseException:
        writer.abort()
        raise"""
MANY = "from shardtools.places import at_once; list(at_once(storage, storage.entry, map(str, range(20))))"
BUSY = 'storage.get("x")'


@pytest.fixture
def silent():
    """The endpoint of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def busy():
    """The endpoint of a server that asks every client to come back in a minute."""
    answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "server, call", [("silent", FOUND), ("silent", WRITE), ("silent", MANY), ("busy", BUSY)], ids=["read", "write", "many", "wait"]
)
def test_an_interrupt_ends_the_program_within_seconds(request, server, call):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_ENDPOINT_URL": request.getfixturevalue(server), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    environment |= {"AWS_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    program = PROGRAM.format(call=call)
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(1.5)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert out == "interrupted\n", err
