"""What is lent to the threads that parse, and taken back before Python may end."""

import io
import weakref
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_WAIT_SECONDS = 20.0

_T = TypeVar("_T")


class Lent:
    """What threads of Arrow hold of Python's: they read ahead, also when no more rows are wanted, and if they did so, or let go of
    anything, while Python ends, the process would be aborted."""

    def __init__(self) -> None:
        self._out: list[Any] = []
        # Its put is no Python code, within which another thread could have its turn before this one has let go.
        self._back: SimpleQueue[Any] = SimpleQueue()

    def out(self, thing: _T) -> _T:
        self._out.append(weakref.ref(thing, self._back.put))
        return thing

    def wait(self) -> None:
        """Until everything is back."""
        num_back = 0
        while num_back < len(self._out):
            try:
                self._back.get(timeout=_WAIT_SECONDS)
            except Empty:
                return
            num_back += 1


class LentFile:
    """A stream as the file that Arrow reads."""

    closed = False

    def __init__(self, stream: io.RawIOBase, lent: Lent) -> None:
        self._file = io.BufferedReader(stream, 1 << 20)
        self._lent = lent

    def read(self, num_bytes: int) -> memoryview:
        return self._lent.out(memoryview(self._file.read(num_bytes)))

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
