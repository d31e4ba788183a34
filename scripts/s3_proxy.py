#!/usr/bin/env python3
"""A proxy on loopback between a client and an S3 store, which adds latency to every request.

    s3_proxy.py --upstream http://127.0.0.1:8333 --latency-ms 20     prints {"endpoint"} as JSON and serves until it is ended

Clients sign for its address; it passes the Host header on as it came, so that their signatures stay valid. The tests of the storage
put faults into it: what is done with a request is what ``Proxy.tamper`` says.
"""

import argparse
import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
TIMEOUT_SECONDS = 120.0
_BLOCK_BYTES = 256 << 10
_Headers = dict[str, str]


@dataclass(frozen=True)
class Message:
    """A request or an answer: its first line, its headers by lower-case name, its body."""

    line: str
    headers: _Headers
    body: bytes = b""

    @property
    def operation(self) -> str:
        """Of a request, what S3 calls it: ``GetObject``."""
        method, target, _ = self.line.split(" ", 2)
        query = parse_qs(urlsplit(target).query, keep_blank_values=True)
        is_bucket = target.partition("?")[0].strip("/").count("/") == 0
        copied = "Copy" if "x-amz-copy-source" in self.headers else ""
        if "uploads" in query:
            return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
        if "uploadId" in query:
            return {"PUT": f"UploadPart{copied}", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}.get(
                method, "ListParts"
            )
        if is_bucket:
            return {"GET": "ListObjectsV2", "POST": "DeleteObjects", "PUT": "CreateBucket", "HEAD": "HeadBucket"}.get(
                method, "DeleteBucket"
            )
        return {"PUT": "CopyObject" if copied else "PutObject"}.get(method, f"{method.capitalize()}Object")

    def head(self) -> bytes:
        lines = [self.line, *(f"{name}: {value}" for name, value in self.headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Connection:
    """One client's connection and the connection to the store that belongs to it."""

    def __init__(self, client: socket.socket, upstream: tuple[str, int]) -> None:
        self.client = client
        self.reader: BinaryIO = client.makefile("rb")
        self._upstream = upstream
        self._store: socket.socket | None = None
        self._answers: BinaryIO | None = None

    def request(self) -> Message | None:
        """The next of the client, with its body; None at the end."""
        head = read_head(self.reader)
        if head is None:
            return None
        if head.headers.pop("expect", ""):
            self.client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Message(head.line, head.headers, b"".join(body_of(self.reader, head.headers)))

    def forward(self, request: Message) -> tuple[Message, Iterator[bytes]]:
        """The answer of the store, and its body as it comes. Raises OSError."""
        for is_last in (False, True):
            try:
                if self._store is None:
                    self._store = socket.create_connection(self._upstream, TIMEOUT_SECONDS)
                    self._store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._answers = self._store.makefile("rb")
                assert self._answers is not None
                self._store.sendall(request.head() + request.body)
                answer = read_head(self._answers)
                if answer is None:
                    raise ConnectionError("the store closed the connection")
            except OSError:
                self.forget_store()
                if is_last:
                    raise
                continue
            has_body = not request.line.startswith("HEAD ") and answer.line.split(" ")[1] not in ("204", "304")
            return answer, body_of(self._answers, answer.headers) if has_body else iter(())
        raise AssertionError

    def send(self, answer: Message) -> None:
        self.client.sendall(answer.head() + answer.body)

    def reset(self) -> None:
        """The client sees ``connection reset by peer``."""
        with contextlib.suppress(OSError):
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def forget_store(self) -> None:
        for held in (self._answers, self._store):
            if held is not None:
                held.close()
        self._store = self._answers = None

    def close(self) -> None:
        self.forget_store()
        self.reader.close()
        self.client.close()


Tamper = Callable[[Connection, Message], bool]
"""Answers the request itself, or closes the connection, and says True; or says False, and it is passed on."""


class Proxy:
    """Serves in threads of its own from ``start`` to ``close``."""

    def __init__(self, upstream: str, latency_seconds: float = 0.0, tamper: Tamper | None = None) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or HOST, parts.port or 80)
        self._latency_seconds = latency_seconds
        self.tamper = tamper
        self._listener = socket.create_server((HOST, 0), backlog=1024)
        self.endpoint = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self._clients: set[Connection] = set()

    def start(self) -> "Proxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._clients):
            with contextlib.suppress(OSError):
                connection.client.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.settimeout(TIMEOUT_SECONDS)
            threading.Thread(target=self._serve, args=(Connection(client, self._upstream),), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        self._clients.add(connection)
        try:
            # A socket that was reset or closed by a fault ends the loop.
            while connection.client.fileno() >= 0 and (request := connection.request()) is not None:
                if self._latency_seconds:
                    time.sleep(self._latency_seconds)
                if self.tamper is None or not self.tamper(connection, request):
                    relay(connection, request)
        except (OSError, ValueError):
            pass  # the client went away, or the store did: the client sees a connection that ends
        finally:
            self._clients.discard(connection)
            connection.close()


def relay(connection: Connection, request: Message) -> None:
    """Pass the request on, and the answer back as it comes."""
    answer, body = connection.forward(request)
    is_chunked = answer.headers.get("transfer-encoding") == "chunked"
    connection.client.sendall(answer.head())
    for block in body:
        connection.client.sendall(b"%x\r\n%b\r\n" % (len(block), block) if is_chunked else block)
    if is_chunked:
        connection.client.sendall(b"0\r\n\r\n")


def read_head(reader: BinaryIO) -> Message | None:
    """A message without its body; None at the end."""
    line = reader.readline(65537).rstrip(b"\r\n").decode("latin-1")
    if not line:
        return None
    headers: _Headers = {}
    while text := reader.readline(65537).rstrip(b"\r\n").decode("latin-1"):
        name, _, value = text.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Message(line, headers)


def body_of(reader: BinaryIO, headers: _Headers) -> Iterator[bytes]:
    if headers.get("transfer-encoding") == "chunked":
        while num_bytes := int(reader.readline().partition(b";")[0], 16):
            yield from blocks(reader, num_bytes)
            reader.readline()
        while reader.readline().strip():
            pass
    else:
        yield from blocks(reader, int(headers.get("content-length", 0)))


def blocks(reader: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    while num_bytes:
        block = reader.read(min(num_bytes, _BLOCK_BYTES))
        if not block:
            raise ConnectionError("the body was cut")
        num_bytes -= len(block)
        yield block


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", required=True, help="the store's endpoint, http://HOST:PORT")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added to every request")
    asked = parser.parse_args()
    proxy = Proxy(asked.upstream, asked.latency_ms / 1000).start()
    print(json.dumps({"endpoint": proxy.endpoint}), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
