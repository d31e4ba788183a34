"""An endpoint that is mistyped is told in seconds, and one that is down for a while is waited for, not without a word.

Stops a minute of silence before a sentence that names a wrong port, and runs of hours that end because the store was restarted.
"""

import logging
import multiprocessing
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError

from shardtools.storage.s3 import _attempts
from shardtools.storage.s3._failures import failure_of

ENDPOINT = "http://user:secret@127.0.0.1:1"
REFUSED = EndpointConnectionError(endpoint_url=ENDPOINT, error=ConnectionRefusedError(111, "Connection refused"))
NAMELESS = EndpointConnectionError(endpoint_url=ENDPOINT, error=socket.gaierror(-2, "Name or service not known"))
SLOW = ConnectTimeoutError(endpoint_url=ENDPOINT)
BUSY = ClientError({"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "GetObject")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has asked nobody yet, and waits next to nothing."""
    monkeypatch.setattr(_attempts, "_KNOWN", _attempts._Known())
    monkeypatch.setattr(_attempts, "PATIENCE", _attempts.Patience(first_wait=0.0001, longest_wait=0.0001))
    monkeypatch.setattr(_attempts, "client", lambda: SimpleNamespace(meta=SimpleNamespace(endpoint_url=ENDPOINT)))


def attempts_of(*errors: Exception) -> int:
    """How often a request is made that raises these, the last again and again."""
    left = list(errors)

    def request(_: Any) -> None:
        raise left.pop(0) if len(left) > 1 else left[0]

    with pytest.raises(_attempts.RefusedError) as caught:
        _attempts.attempt(request)
    return caught.value.attempts


@pytest.mark.parametrize("error", [REFUSED, NAMELESS])
def test_an_endpoint_that_was_never_reached_is_given_up_soon(error: Exception) -> None:
    assert attempts_of(error) == 5
    assert attempts_of(error) == 5
    longest = sum(min(_attempts.Patience().first_wait * 2**i, 20) for i in range(4))
    assert longest == pytest.approx(3.0)


@pytest.mark.parametrize("answer", [None, BUSY])
def test_one_that_has_answered_is_waited_for(answer: Exception | None) -> None:
    if answer is None:
        assert _attempts.attempt(lambda _: "answer") == "answer"
        assert attempts_of(REFUSED) == 10
    else:
        assert attempts_of(answer, REFUSED) == 10


def test_what_may_pass_is_waited_for() -> None:
    assert attempts_of(SLOW) == 10


def test_workers_wait_since_another_process_has_reached_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    assert attempts_of(REFUSED) == 10


def test_a_name_that_nobody_knows_is_told() -> None:
    assert failure_of(NAMELESS).cause == "the endpoint cannot be reached, since its name is not known here"
    assert failure_of(REFUSED).cause == "the endpoint cannot be reached"


def test_repeats_that_take_long_are_told_of_once_and_nothing_secret_with_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "shardtools.storage"):
        attempts_of(SLOW)
        assert caplog.messages == []
        monkeypatch.setattr(_attempts, "_WORD_AFTER_SECONDS", -1.0)
        attempts_of(SLOW)
        attempts_of(BUSY)
    assert caplog.messages == ["http://127.0.0.1:1: no connection in time; trying again, for up to 180 s"]
