"""Faults that networks and object stores have, put between a client and a real store, by a schedule."""

import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from s3_proxy import Connection, Message, Proxy, relay

SLOW_SECONDS = 0.05
Fault = Callable[[Connection, Message], None]


def refusal(status: int, code: str, message: str = "said by a test", **headers: str) -> Fault:
    """The store is not asked."""

    def answer(connection: Connection, request: Message) -> None:
        body = b"" if request.line.startswith("HEAD ") else error_body(code, message)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.send(Message(f"HTTP/1.1 {status} Refused", {"content-length": str(len(body)), **told}, body))

    return answer


def error_body(code: str, message: str) -> bytes:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message><RequestId>1</RequestId></Error>'
    return text.encode()


def reset_before(connection: Connection, _: Message) -> None:
    connection.reset()


def lost_answer(connection: Connection, request: Message) -> None:
    """The store did it; the client never learns."""
    answered(connection, request)
    connection.reset()


def closed(connection: Connection, request: Message) -> None:
    answered(connection, request)
    connection.close()


def slow_first_byte(connection: Connection, request: Message) -> None:
    answer = answered(connection, request)
    time.sleep(SLOW_SECONDS)
    connection.send(answer)


def cut_body(connection: Connection, request: Message) -> None:
    answer = answered(connection, request)
    connection.send(replace(answer, body=answer.body[: len(answer.body) // 2]))
    connection.close()


def longer_than_announced(connection: Connection, request: Message) -> None:
    """The last bytes of the body lie beyond its length."""
    answer = answered(connection, request)
    if answer.body:
        answer = replace(answer, headers={**answer.headers, "content-length": str(max(len(answer.body) - 3, 0))})
    connection.send(answer)
    connection.close()


def shorter_than_announced(connection: Connection, request: Message) -> None:
    answer = answered(connection, request)
    if answer.body:
        answer = replace(answer, headers={**answer.headers, "content-length": str(len(answer.body) + 3)})
    connection.send(answer)
    connection.close()


def error_after_200(connection: Connection, _: Message) -> None:
    """As S3 answers a copy or a completion that failed when its first bytes were sent already."""
    body = error_body("InternalError", "We encountered an internal error. Please try again.")
    connection.send(Message("HTTP/1.1 200 OK", {"content-type": "application/xml", "content-length": str(len(body))}, body))


def garbage(connection: Connection, request: Message) -> None:
    """A portal that answers everything itself."""
    body = b"" if request.line.startswith("HEAD ") else b"<html><body>Please log in to the network<br></body>"
    connection.send(Message("HTTP/1.1 200 OK", {"content-type": "text/html", "content-length": str(len(body))}, body))


def empty_answer(connection: Connection, request: Message) -> None:
    answered(connection, request)
    connection.send(Message("HTTP/1.1 200 OK", {"content-length": "0"}))


def flipped_on_the_way_there(connection: Connection, request: Message) -> None:
    is_upload = request.operation in ("PutObject", "UploadPart")
    relay(connection, replace(request, body=flipped(request.body)) if is_upload else request)


def flipped_on_the_way_back(connection: Connection, request: Message) -> None:
    answer = answered(connection, request)
    connection.send(replace(answer, body=flipped(answer.body)))


def flipped(body: bytes) -> bytes:
    middle = len(body) // 2
    return body and body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


def answered(connection: Connection, request: Message) -> Message:
    """What the store says, with its whole body and the length of it."""
    answer, blocks = connection.forward(request)
    body = b"".join(blocks)
    headers = {name: value for name, value in answer.headers.items() if name != "transfer-encoding"}
    is_head = request.line.startswith("HEAD ")
    return replace(answer, headers=headers if is_head else {**headers, "content-length": str(len(body))}, body=body)


PASSING: dict[str, Fault] = {
    "503 SlowDown": refusal(503, "SlowDown"),
    "503 with a wait": refusal(503, "SlowDown", retry_after="1"),
    "500": refusal(500, "InternalError"),
    "429": refusal(429, "TooManyRequests"),
    "409 of two at once": refusal(409, "OperationAborted"),
    "400 RequestTimeout": refusal(400, "RequestTimeout"),
    "reset before": reset_before,
    "lost answer": lost_answer,
    "closed": closed,
    "slow first byte": slow_first_byte,
    "cut body": cut_body,
    "shorter than announced": shorter_than_announced,
    "longer than announced": longer_than_announced,
    "empty": empty_answer,
    "200 with an error": error_after_200,
    "garbage": garbage,
}
"""After one of them the next attempt succeeds, whatever the operation."""

LASTING: dict[str, tuple[Fault, str]] = {
    "expired": (refusal(400, "ExpiredToken", "The provided token has expired."), "ExpiredToken"),
    "skewed": (
        refusal(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large."),
        "TooSkewed",
    ),
    "denied": (refusal(403, "AccessDenied", "Access Denied"), "AccessDenied"),
    "signature": (refusal(403, "SignatureDoesNotMatch", "The signature does not match"), "SignatureDoesNotMatch"),
    "bad key": (refusal(403, "InvalidAccessKeyId", "The key does not exist"), "InvalidAccessKeyId"),
    "no bucket": (refusal(404, "NoSuchBucket", "The specified bucket does not exist"), "NoSuchBucket|answered 404"),
    "busy for ever": (refusal(503, "SlowDown"), "the server answered 503|SlowDown"),
    "reset for ever": (reset_before, "the connection was closed"),
    "garbage for ever": (garbage, "answer"),
}
"""Faults that stay, and a pattern of what the sentence about them says; what refuses HEAD has no words but its status."""


@dataclass
class Schedule:
    """What is done with one request after the other: a fault, or nothing. What comes after the last is passed on.

    ``of``: only requests of these operations count.
    """

    faults: Iterable[Fault | None]
    of: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._rest = iter(self.faults)
        self._taking = threading.Lock()
        self.seen: list[str] = []
        """The operations of all requests so far."""

    def __call__(self, connection: Connection, request: Message) -> bool:
        with self._taking:
            self.seen.append(request.operation)
            fault = None if self.of and request.operation not in self.of else next(self._rest, None)
        if fault is not None:
            fault(connection, request)
        return fault is not None


def drawn(seed: int, share: float, faults: Iterable[Fault]) -> Iterator[Fault | None]:
    """For ever: a random fault in this share of all requests. The lock of the schedule keeps the numbers of one thread."""
    numbers, chosen = random.Random(seed), list(faults)
    while True:
        yield numbers.choice(chosen) if numbers.random() < share else None


@contextmanager
def proxied(endpoint: str) -> Iterator[Proxy]:
    proxy = Proxy(endpoint).start()
    try:
        yield proxy
    finally:
        proxy.close()
