"""Requests repeated until they succeed or it is plain that they will not."""

import logging
import multiprocessing
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from shardtools.errors import StorageError
from shardtools.storage.s3._client import client, forget_client
from shardtools.storage.s3._failures import BrokenAnswerError, Failure, failure_of, printable

_LOG = logging.getLogger("shardtools.storage")
_T = TypeVar("_T")
_WORD_AFTER_SECONDS, _WORD_EVERY_SECONDS = 3.0, 60.0
"""When repeats are told of: nobody is to think that the run hangs, or to read of every one of a thousand requests."""


@dataclass(frozen=True)
class Patience:
    """How often and how long a request is repeated. The waits double, each drawn between nothing and its full length."""

    attempts: int = 10
    first_wait: float = 0.2
    longest_wait: float = 20.0
    seconds: float = 180.0
    """After which no attempt is begun."""
    attempts_to_reach: int = 5
    """Where an endpoint was never reached, which is more likely to be mistyped than down: three seconds."""

    def wait_after(self, number: int, asked_seconds: float) -> float:
        """Before the next attempt, in seconds: no shorter than the server asked for, within reason."""
        full = min(self.first_wait * 2 ** (number - 1), self.longest_wait)
        return max(random.uniform(0, full), min(asked_seconds, self.longest_wait))


PATIENCE = Patience()
FAULTS = (ClientError, BotoCoreError, ResponseParserError, BrokenAnswerError, HTTPError, OSError, ValueError)
"""All that a request raises. ValueError: a header that holds no number or time."""


@dataclass
class _Known:
    """What this process knows of its endpoints."""

    answering: set[str] = field(default_factory=set)
    """Those that gave an answer, of any kind."""
    last_word: float = -_WORD_EVERY_SECONDS
    """When repeats were last told of."""


_KNOWN = _Known()


class RefusedError(Exception):
    """A request that failed for good."""

    def __init__(self, failure: Failure, attempts: int, endpoint: str = "") -> None:
        super().__init__(failure.cause)
        self.failure = failure
        self.attempts = attempts
        self.endpoint = endpoint

    def sentence(self, action: str, where: str) -> StorageError:
        """For users: what was tried, on which object, why it failed, after how many attempts and where."""
        tried = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        tried += f" at {self.endpoint}" if self.endpoint else ""
        return StorageError(f"could not {action} {printable(where)}: {self.failure.cause}, after {tried}; {self.failure.remedy}")


def attempt(request: Callable[[Any], _T], stop: threading.Event | None = None) -> _T:
    """What ``request`` gives when it is called with the client; called again after a fault that may pass.

    It must be safe to repeat. Raises RefusedError. ``stop``: once set, nothing is waited for.
    """
    began = time.monotonic()
    stop = stop or threading.Event()
    number = 0
    is_renewed = False
    while True:
        number += 1
        s3 = client()
        try:
            answer = request(s3)
        except FAULTS as error:
            failure = failure_of(error)
        else:
            _KNOWN.answering.add(s3.meta.endpoint_url)
            return answer
        is_last = number >= _most_attempts(s3, failure) or time.monotonic() - began > PATIENCE.seconds
        # New credentials may lie in a file by now; if not, waiting brings none.
        is_last |= failure.has_expired and is_renewed
        if not failure.is_worth_a_repeat or is_last or stop.is_set():
            raise RefusedError(failure, number, _endpoint_of(s3))
        if failure.has_expired:
            forget_client(s3)
            is_renewed = True
        else:
            seconds = PATIENCE.wait_after(number, failure.wait_seconds)
            _tell(s3, failure, time.monotonic() - began + seconds)
            stop.wait(seconds)


def _most_attempts(s3: Any, failure: Failure) -> int:
    """Fewer where nothing says that there is such an endpoint at all. Workers run where another process has reached it already."""
    if failure.code:
        _KNOWN.answering.add(s3.meta.endpoint_url)
    is_known = s3.meta.endpoint_url in _KNOWN.answering or multiprocessing.parent_process() is not None
    return PATIENCE.attempts if is_known or not failure.is_unreachable else min(PATIENCE.attempts, PATIENCE.attempts_to_reach)


def _tell(s3: Any, failure: Failure, seconds: float) -> None:
    """Log that a request is repeated, before it has taken so many seconds."""
    now = time.monotonic()
    if seconds > _WORD_AFTER_SECONDS and now - _KNOWN.last_word > _WORD_EVERY_SECONDS:
        _KNOWN.last_word = now
        _LOG.warning("%s: %s; trying again, for up to %.0f s", _endpoint_of(s3), failure.cause, PATIENCE.seconds)


def _endpoint_of(s3: Any) -> str:
    """The address the client asks: of all that the environment and the config files name, one that is mistaken is seen in no other way."""
    return re.sub(r"//.*@", "//", s3.meta.endpoint_url)  # a password may stand before the host


@contextmanager
def one_sentence(action: str, where: str) -> Iterator[None]:
    """Refusals inside become a StorageError."""
    try:
        yield
    except RefusedError as refused:
        raise refused.sentence(action, where) from refused
