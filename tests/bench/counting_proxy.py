"""A forwarder on loopback before an object store that counts what passes: the oracle of what bench counts in the processes that read."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Passed:
    """Of requests that read."""

    endpoint: str = ""
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, path, bytes of the answer's body."""
    delay_seconds: float = 0.0
    """Before each is sent on."""

    @property
    def num_bytes(self) -> int:
        return sum(num_bytes for _, _, num_bytes in self.requests)

    def of(self, method: str, ending: str = "") -> list[str]:
        return [path for how, path, _ in self.requests if how == method and path.endswith(ending)]


@contextmanager
def counting_proxy(upstream: str) -> Iterator[Passed]:
    """Signatures stay valid: the store sees the host that was signed."""
    passed, address = Passed(), urlsplit(upstream).netloc
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(passed, address))
    server.daemon_threads = True
    passed.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield passed
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(passed: Passed, address: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Answers are written in two pieces, of which the second would wait for the other side's acknowledgement.
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def _forward(self) -> None:
            time.sleep(passed.delay_seconds)
            connection = http.client.HTTPConnection(address, timeout=30)
            try:
                connection.request(self.command, self.path, headers=dict(self.headers.items()))
                answer = connection.getresponse()
                body = answer.read()
            finally:
                connection.close()
            passed.requests.append((self.command, self.path.partition("?")[0], len(body)))
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(answer.getheader("Content-Length") if self.command == "HEAD" else len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = _forward  # noqa: N815 - names that the library asks for

        def log_message(self, *_: object) -> None:
            pass

    return Handler
