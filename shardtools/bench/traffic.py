"""What a trial fetches from an object store: requests, bytes and latency, over all its workers, in memory that they share.

Counted in the processes that read, where the requests of botocore pass through urllib3, whoever makes them (``shardtools.storage.s3``,
StreamingDataset); and what comes through webdataset's pipes, of which nobody sees the requests: those are another program's.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from shardtools.bench.not_measured import Reasons
from shardtools.bench.places import is_remote
from shardtools.bench.spec import Layout

_FASTEST_S, _STEP, _NUM_BUCKETS = 1e-4, 1.02, 800
"""Latencies are counted in buckets each 2 % wider than the one before, from 0.1 ms to 760 s: percentiles are right within 1 %."""
_REQUESTS, _BYTES, _SECONDS = range(3)
_NUM_TOTALS = 3
PIPED = "another program (aws) makes the requests and does not tell them: only the bytes of its pipe are counted"
_NO_REQUEST = "nothing was requested: all came from local copies"


class Traffic:
    """float64 [1 + workers, totals and buckets]; row 0 is the process that has no workers. Inherited by fork, pickled for spawn."""

    def __init__(self, layout: Layout, num_workers: int) -> None:
        self._is_piped = is_piped(layout)
        self._cells = torch.zeros(1 + num_workers, _NUM_TOTALS + _NUM_BUCKETS, dtype=torch.float64).share_memory_()  # type: ignore[no-untyped-call]
        self._locks: dict[int, threading.Lock] = {}
        """Of threads, by process: what a fork copies may be held by a thread that it does not."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_is_piped": self._is_piped, "_cells": self._cells, "_locks": {}}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """In it, this process counts, and those it forks."""
        with _pipes_told(self._read) if self._is_piped else _requests_told(self._request, self._read):
            yield

    def begin_worker(self) -> None:
        """Counting in a worker that was started afresh, for as long as it lives; those that are forked count already."""
        self._for_life = ExitStack()
        self._for_life.enter_context(self.counting())

    def found(self, num_samples: int, wall_s: float, reasons: Reasons) -> dict[str, Any]:
        """Since it was made, in ``wall_s``, while ``num_samples`` were delivered."""
        totals = self._cells.sum(0).numpy()
        num_requests, num_bytes, seconds = totals[:_NUM_TOTALS].tolist()
        found: dict[str, Any] = {"bytes": int(num_bytes), "MBps": num_bytes / 1e6 / wall_s, "samples": num_samples, "wall_s": wall_s}
        if self._is_piped:
            for name in ("requests", "latency_ms"):
                reasons.add(f"fetched.{name}", PIPED)
            return found | {"requests": None, "latency_ms": None}
        if not num_requests:
            reasons.add("fetched.latency_ms", _NO_REQUEST)
            return found | {"requests": 0, "latency_ms": None}
        p50, p99 = (_percentile(totals[_NUM_TOTALS:], share) * 1000 for share in (0.5, 0.99))
        return found | {"requests": int(num_requests), "latency_ms": {"mean": seconds / num_requests * 1000, "p50": p50, "p99": p99}}

    def _request(self, seconds: float) -> None:
        self._add(0, seconds)

    def _read(self, num_bytes: int) -> None:
        self._add(num_bytes, None)

    def _add(self, num_bytes: int, seconds: float | None) -> None:
        worker, pid = get_worker_info(), os.getpid()
        row = self._cells[0 if worker is None else 1 + worker.id].numpy()
        with self._locks.get(pid) or self._locks.setdefault(pid, threading.Lock()):
            row[_BYTES] += num_bytes
            if seconds is not None:
                row[_REQUESTS] += 1
                row[_SECONDS] += seconds
                row[_NUM_TOTALS + _bucket(seconds)] += 1


def is_piped(layout: Layout) -> bool:
    """Whether another program fetches."""
    return layout.reader == "webdataset" and is_remote(layout.uri)


@contextmanager
def _requests_told(request: Callable[[float], None], read: Callable[[int], None]) -> Iterator[None]:
    """Seconds until an answer began, or its request failed; then its body, piece by piece. A request that is repeated is two."""
    from urllib3 import HTTPConnectionPool

    def told(real: Any) -> Any:
        def urlopen(pool: Any, *args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                answer = real(pool, *args, **options)
            finally:
                request(time.perf_counter() - began)
            answer.read = _told_reads(answer.read, read)  # all other ways of reading a body come to this one
            return answer

        return urlopen

    with _replaced(HTTPConnectionPool, "urlopen", told):
        yield


@contextmanager
def _pipes_told(read: Callable[[int], None]) -> Iterator[None]:
    """What webdataset reads of the programs it starts."""
    from webdataset.gopen import Pipe

    with _replaced(Pipe, "read", lambda real: _told_reads(real, read)):
        yield


def _told_reads(real: Any, read: Callable[[int], None]) -> Any:
    def told(*args: Any, **options: Any) -> bytes:
        data: bytes = real(*args, **options)
        read(len(data))
        return data

    return told


@contextmanager
def _replaced(kind: type, name: str, around: Callable[[Any], Any]) -> Iterator[None]:
    """A method of a library's class, while it lasts."""
    real = getattr(kind, name)
    setattr(kind, name, around(real))
    try:
        yield
    finally:
        setattr(kind, name, real)


def _bucket(seconds: float) -> int:
    number = int(np.log(max(seconds, _FASTEST_S) / _FASTEST_S) / np.log(_STEP))
    return min(number, _NUM_BUCKETS - 1)


def _percentile(buckets: "npt.NDArray[np.float64]", share: float) -> float:
    """The middle of the bucket in which it lies."""
    number = int(np.searchsorted(np.cumsum(buckets), share * buckets.sum()))
    return float(_FASTEST_S * _STEP ** (number + 0.5))
