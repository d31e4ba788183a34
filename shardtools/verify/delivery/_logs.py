"""What a rank delivered, written as it comes: a JSON line for each batch, ``[worker, [id, ...], is_batch]``, in order.

``is_batch`` is true where the reader itself put these ids together.
"""

import json
import time
from collections.abc import Iterator

_FLUSH_SECONDS = 1.0


class LogWriter:
    """Writes one log; at least once a second what was written can be seen, since it is the sign of life."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="ascii")  # noqa: SIM115 closed by ``close``
        self._flushed = time.monotonic()

    def write(self, worker: int | None, ids: list[str], is_batch: bool) -> None:
        self._file.write(json.dumps([worker, ids, is_batch]) + "\n")
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()


def read_log(path: str) -> Iterator[tuple[int | None, list[str], bool]]:
    """Every batch of a log that was closed."""
    with open(path, encoding="ascii") as file:
        for line in file:
            worker, ids, is_batch = json.loads(line)
            yield worker, ids, is_batch
