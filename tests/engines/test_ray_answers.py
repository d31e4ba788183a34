"""Stops a run that waits for minutes, or ends in messages of Ray's own, where what listens at the address is no cluster."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray` has it")

from shardtools.engines.ray import _session
from shardtools.engines.ray._crew import said_by

SETTINGS = bytes([0, 0, 24, 4, 0, 0, 0, 0, 0])
"""How every server of HTTP/2 begins: the length of the frame, its type, flags, and the stream."""
TLS_ALERT = bytes([21, 3, 3, 0, 2, 2, 22])


@contextmanager
def server(answer: bytes | None) -> Iterator[int]:
    """The port of one that gives this answer to whatever it is told, and ends the connection; None: it keeps silent."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    done.wait(30)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            done.set()
            thread.join(10)


@pytest.mark.parametrize("answer", [SETTINGS, TLS_ALERT, b""], ids=["gRPC", "TLS", "the end"])
def test_what_may_be_ray_is_left_to_ray(answer):
    with server(answer) as port:
        _session._demand_answer("127.0.0.1", port)


@pytest.mark.parametrize("answer", [b"<!DOCTYPE HTML>", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n"])
def test_what_answers_otherwise_is_refused(answer):
    with server(answer) as port, pytest.raises(OSError) as caught:
        _session._demand_answer("127.0.0.1", port)
    assert said_by(caught.value) == "an answer of something else than Ray"


def test_silence_is_refused_soon(monkeypatch):
    monkeypatch.setattr(_session, "_CONNECT_SECONDS", 0.3)
    with server(None) as port, pytest.raises(OSError) as caught:
        _session._demand_answer("127.0.0.1", port)
    assert said_by(caught.value) == "no answer within 0 seconds"
