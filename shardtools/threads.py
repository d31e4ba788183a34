"""Calls made several at a time, whose results come in order."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")
_I = TypeVar("_I")
_LAST_SECONDS = 5.0


class Threads:
    """Call functions in up to ``num_threads`` threads, which are made as they are needed.

    Unlike the standard library's pool, nobody waits for what they are doing when the program is interrupted or ends: a server that
    does not answer would hold it for minutes.
    """

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._threads: list[threading.Thread] = []
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()

    def submit(self, function: Callable[..., _T], *arguments: Any) -> "Future[_T]":
        future: Future[_T] = Future()
        self._calls.put((future, function, arguments))
        if len(self._threads) < self._num_threads:
            self._threads.append(threading.Thread(target=self._serve, daemon=True))
            self._threads[-1].start()
        return future

    def close(self, seconds: float = 0.0) -> None:
        """No call that has not begun is made. Waits so long at most for those that have."""
        with suppress(queue.Empty):
            while (call := self._calls.get_nowait()) is not None:
                call[0].cancel()
        for _ in self._threads:
            self._calls.put(None)
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, arguments = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)
            # While it waits for the next, a thread holds nothing of the last.
            del call, future, function, arguments


def in_order(function: Callable[[_I, threading.Event], _T], items: Iterable[_I], num_at_once: int) -> Iterator[_T]:
    """What the function gives for every item, in their order, computed up to ``num_at_once`` ahead.

    The function is also given an event that is set once nobody wants more. The first error in order ends it, after what had begun
    did too, or some seconds: so little as can be goes on behind the back of whoever mends what failed.
    """
    stop = threading.Event()
    if num_at_once == 1:
        yield from (function(item, stop) for item in items)
        return
    threads = Threads(num_at_once)
    ahead: deque[Future[_T]] = deque()
    try:
        for item in items:
            ahead.append(threads.submit(function, item, stop))
            if len(ahead) > num_at_once:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    except Exception:
        stop.set()
        threads.close(_LAST_SECONDS)
        raise
    finally:
        stop.set()
        threads.close()
