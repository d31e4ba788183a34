"""The process of a trial as its supervisor holds it: its words, how far it is, what it wrote down, and its end."""

import json
import os
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from shardtools.bench.processes.own_process import OwnProcess
from shardtools.bench.spec import TrialSpec
from shardtools.bench.trial._words import RESULT_NAME


class TrialProcess:
    """As a context it ends everything the trial started, whatever happens inside."""

    def __init__(self, spec: TrialSpec, folder: str) -> None:
        self.written: dict[str, Any] = {}
        """What it wrote down; there when it is closed."""
        self._spec = spec
        self._buffer = b""
        self._is_closed = False
        self._events, out = os.pipe()
        try:
            self._process = OwnProcess("shardtools.bench.trial.child", folder, (str(out),), pass_fds=(out,))
        finally:
            os.close(out)
        self._process.tell(json.dumps(spec.as_json()).encode())

    @property
    def pid(self) -> int:
        """Its group's number too."""
        return self._process.pid

    @property
    def leftovers(self) -> list[str]:
        """What it left behind and was removed; there when it is closed, as what follows."""
        return self._process.leftovers

    @property
    def said(self) -> str:
        """The end of what it printed."""
        return self._process.said

    @property
    def has_result(self) -> bool:
        return os.path.exists(self._result_path)

    def __enter__(self) -> "TrialProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close(grace_seconds=0.0)

    def events(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What the trial has told, waiting at most so long for the first word."""
        if not select.select([self._events], [], [], seconds)[0]:
            return
        data = os.read(self._events, 65536)
        if not data:
            time.sleep(seconds)  # closed, and readable for ever: it is about to end
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def listen(self) -> bool:
        """Whether ``said`` has changed since."""
        return self._process.listen()

    def go_on(self) -> None:
        """Let it pass the point at which it waits."""
        self._process.tell(b"go")

    def exit_code(self) -> int | None:
        """None while it runs, minus the signal that ended it."""
        return self._process.exit_code()

    def remember_shared_memory(self) -> None:
        """Objects it uses now are its own, should it not be able to remove them."""
        self._process.remember_shared_memory()

    def close(self, grace_seconds: float) -> None:
        """End the whole group, remove what it left, and read what it wrote down."""
        self._process.close(grace_seconds)
        if self._is_closed:
            return
        self._is_closed = True
        os.close(self._events)
        if self._spec.layout.reader == "streaming":
            from shardtools.bench.readers import free_shared_memory

            num_freed = free_shared_memory(self.pid, self._process.folder)
            self._process.leftovers += [f"{num_freed} blocks of shared memory of StreamingDataset"] if num_freed else []
        with suppress(FileNotFoundError), open(self._result_path, encoding="utf-8") as written:
            self.written = json.load(written)

    @property
    def _result_path(self) -> str:
        return os.path.join(self._process.folder, RESULT_NAME)
