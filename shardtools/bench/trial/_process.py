"""The process of a trial as its supervisor holds it: pipes, exit, and the end of its whole group."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from shardtools.bench import processes
from shardtools.bench.spec import TrialSpec
from shardtools.bench.trial import _leftovers
from shardtools.bench.trial._words import RESULT_NAME

_WORDS_NAME = "words"
_SAID_BYTES = 64 * 1024
_LINGER_SECONDS = 1.0
"""What watches over shared objects ends a moment after the process it watches for."""


class TrialProcess:
    """As a context it ends everything the trial started, whatever happens inside."""

    def __init__(self, spec: TrialSpec, folder: str) -> None:
        self.folder = folder
        self.leftovers: list[str] = []
        self.said = ""
        """What it printed, and below what it wrote down; both when it is closed."""
        self.written: dict[str, Any] = {}
        self._spec = spec
        self._token = _leftovers.token_of(folder)
        self._shm_names: set[str] = set()
        self._buffer = b""
        self._is_closed = False
        self._events, out = os.pipe()
        try:
            self._process = self._start(out)
        finally:
            os.close(out)
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        with suppress(BrokenPipeError):
            self._stdin.write(json.dumps(spec.as_json()).encode() + b"\n")
            self._stdin.flush()

    def _start(self, out: int) -> "subprocess.Popen[bytes]":
        """In a session of its own: a Ctrl-C of the terminal reaches this process alone, which then ends the group as a whole."""
        with open(os.path.join(self.folder, _WORDS_NAME), "wb") as words:
            return subprocess.Popen(
                [sys.executable, "-m", "shardtools.bench.trial.child", self.folder, str(out)],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                pass_fds=(out,),
                start_new_session=True,
                env={**os.environ, **processes.THREAD_VARIABLES, "TMPDIR": self.folder, _leftovers.TOKEN_VARIABLE: self._token},
            )

    @property
    def pid(self) -> int:
        """Its group's number too."""
        return self._process.pid

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

    def go_on(self) -> None:
        """Let it pass the point at which it waits."""
        with suppress(BrokenPipeError):
            self._stdin.write(b"go\n")
            self._stdin.flush()

    def exit_code(self) -> int | None:
        """None while it runs, minus the signal that ended it."""
        return processes.exit_code(self._process)

    def remember_shared_memory(self) -> None:
        """Objects it uses now are its own, should it not be able to remove them."""
        self._shm_names |= _leftovers.shared_memory_of(self.pid)

    def close(self, grace_seconds: float) -> None:
        """End the whole group and remove what it left. An end by itself is waited for; a grace is given by SIGTERM."""
        if self._is_closed:
            return
        self._is_closed = True
        with _no_interrupt():
            has_ended = self.exit_code() is not None
            if has_ended:
                processes.wait_for_group(self.pid, _LINGER_SECONDS)
            self.remember_shared_memory()
            if has_ended:
                self.leftovers += [f"process {pid} ({_leftovers.process_name(pid)})" for pid in processes.group_members(self.pid)]
            processes.end_group(self.pid, grace_seconds)
            self._process.wait()
            self.leftovers += _leftovers.kill_strays(self._token, self.pid)
            self._remove()
            with suppress(BrokenPipeError):
                self._stdin.close()
            os.close(self._events)

    def _remove(self) -> None:
        self.leftovers += [f"/dev/shm/{name}" for name in _leftovers.remove_shared_memory(self._shm_names)]
        if self._spec.layout.reader == "streaming":
            from shardtools.bench.readers import free_shared_memory

            num_freed = free_shared_memory(self.pid, self.folder)
            self.leftovers += [f"{num_freed} blocks of shared memory of StreamingDataset"] if num_freed else []
        with suppress(FileNotFoundError), open(os.path.join(self.folder, RESULT_NAME), encoding="utf-8") as written:
            self.written = json.load(written)
        with open(os.path.join(self.folder, _WORDS_NAME), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _SAID_BYTES, 0))
            self.said = file.read().decode("utf-8", "replace")
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """A second Ctrl-C must not cut tidying up short, which takes seconds at most."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
