"""Shards fetched before they are asked for, in the order in which they will be."""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from shardtools.loaders._cache import abandon

_MOST_AT_ONCE = 8
_FETCHING_BYTES = 128 << 20
"""Memory for shards that are fetched at the same time, in one process."""
_SHARD_MEMORY_BYTES = 64 << 20
"""What a storage holds at most of one shard on its way."""
_MOST_SKIPPED = 1
"""Blocks in a row that a reader passes over: at the edge of what it reads it may have no sample of one."""
_LAST_SECONDS = 0.25
"""The longest that an end is held up, so that it leaves no part."""

Note = Callable[[str], None]
"""Is told a path before it is written to."""
Fetch = Callable[[int, Note], None]
"""Has a shard on this machine, or leaves it to another process that makes it just now. Raises what reading the shard would."""


class ReadAhead:
    """Fetches shards in the background for one reader in one process.

    ``blocks`` are the shards in the order of reading, those of a block in any order; ``num_bytes`` what each takes on disk. Of what is
    fetched and not yet begun there are at most ``limit_bytes``, or one shard. Threads start when the first shard was begun, which thus
    has the link for itself, and keep no process alive.
    """

    def __init__(self, blocks: Sequence[Sequence[int]], num_bytes: Mapping[int, int], fetch: Fetch, limit_bytes: int) -> None:
        self._left = deque((number, shard) for number, block in enumerate(blocks) for shard in block)
        self._blocks = {shard: number for number, shard in self._left}
        self._num_bytes = num_bytes
        self._fetch = fetch
        self._limit_bytes = limit_bytes
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._ready: set[int] = set()
        """Fetched, or said to be by another process, and not begun."""
        self._begun: set[int] = set()
        """Of the present block."""
        self._block = 0
        self._failed: dict[int, Exception] = {}
        self._threads: list[threading.Thread] = []
        self._parts: set[str] = set()
        """What is being written. At the end of the process nobody is left to remove it."""
        self._untold: set[int] = set()
        """Shards whose fetching has not said what it writes: it may hold the lock of one already."""
        self._closed = threading.Event()
        self._end = weakref.finalize(self, _give_up, self._pid, self._closed, self._parts, self._untold)

    def wait_for(self, shard: int) -> None:
        """Returns when the shard is not being fetched here. Raises what its fetching ended in, if that was waited for."""
        if os.getpid() != self._pid:  # a copy that came by a fork, without the threads
            return
        with self._changed:
            self._failed.pop(shard, None)  # of long ago: it may succeed by now
            while shard in self._running and not self._closed.is_set():
                self._changed.wait()
            failure = self._failed.pop(shard, None)
        if failure is not None:
            raise failure

    def begin(self, shard: int) -> None:
        """The shard is here and being read: room for another, and those of earlier blocks are read no more."""
        if os.getpid() != self._pid or shard not in self._blocks:
            return
        with self._changed:
            # What is read in place of a bad sample may lie anywhere.
            if self._block < self._blocks[shard] <= self._block + _MOST_SKIPPED + 1:
                self._block = self._blocks[shard]
                self._begun.clear()
                self._ready = {ready for ready in self._ready if self._blocks[ready] >= self._block}
            self._begun.add(shard)
            self._ready.discard(shard)
            self._changed.notify_all()
            if not self._threads and not self._closed.is_set() and self._limit_bytes and len(self._blocks) > 1:
                self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(min(_MOST_AT_ONCE, len(self._blocks)))]
                for thread in self._threads:
                    thread.start()

    def close(self) -> None:
        """Nothing more is fetched, and what was begun leaves nothing; does not wait for it."""
        if os.getpid() == self._pid:
            self._end()
            with self._changed:
                self._changed.notify_all()

    def _run(self) -> None:
        while (shard := self._next()) is not None:
            failure, noted = None, list[str]()
            try:
                self._fetch(shard, partial(self._note, shard, noted))
            except Exception as error:
                failure = error
            with self._changed:
                self._parts.difference_update(noted)
                self._running.discard(shard)
                self._untold.discard(shard)
                if failure is not None:
                    self._failed[shard] = failure
                elif self._blocks[shard] >= self._block and shard not in self._begun:
                    self._ready.add(shard)
                self._changed.notify_all()

    def _next(self) -> int | None:
        """The shard to fetch now; None at the end."""
        with self._changed:
            while not self._closed.is_set():
                while self._left and (self._left[0][0] < self._block or self._left[0][1] in self._begun):
                    self._left.popleft()
                if not self._left:
                    return None
                if self._has_room(self._left[0][1]):
                    _, shard = self._left.popleft()
                    self._running.add(shard)
                    self._untold.add(shard)
                    return shard
                self._changed.wait()
        return None

    def _has_room(self, shard: int) -> bool:
        ahead = [self._num_bytes[other] for other in (*self._ready, *self._running)]
        at_once = [min(self._num_bytes[other], _SHARD_MEMORY_BYTES) for other in (shard, *self._running)]
        fits = not ahead or sum(ahead) + self._num_bytes[shard] <= self._limit_bytes
        return fits and (len(at_once) == 1 or sum(at_once) <= _FETCHING_BYTES)

    def _note(self, shard: int, noted: list[str], part: str) -> None:
        noted.append(part)
        self._parts.add(part)
        if self._closed.is_set():
            raise InterruptedError("nobody reads on")  # and is waited for until its lock is gone
        self._untold.discard(shard)


def _give_up(pid: int, closed: threading.Event, parts: set[str], untold: set[int]) -> None:
    """Not a method: at the end of a process it is called without the object."""
    if os.getpid() != pid:
        return
    closed.set()
    gone, until = set[str](), time.monotonic() + _LAST_SECONDS
    while True:
        # Those that are about to be written come within a request's time, or the server is gone and they do not come at all.
        left = parts - gone
        gone |= {part for part in left if abandon(part)}
        if (not (left - gone) & parts and not untold) or time.monotonic() > until:
            return
        time.sleep(0.002)
