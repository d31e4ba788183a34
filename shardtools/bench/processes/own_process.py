"""A fresh process of ours: in a group and a folder of its own, ended with all it started, and nothing of it left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from shardtools.bench.processes import leftovers
from shardtools.bench.processes.groups import THREAD_VARIABLES, exit_code, group_members, signal_group, wait_for_group
from shardtools.signals import held_back

_WORDS_NAME = "words"
_SAID_BYTES = 64 * 1024
_LINGER_SECONDS = 1.0
"""What watches over shared objects ends a moment after the process it watches for."""
_POLL_SECONDS = 0.02


class OwnProcess:
    """``python -m MODULE FOLDER ...``, which has a ``Lifeline``. As a context it ends everything that was started, whatever happens inside.

    In a session of its own: a Ctrl-C of the terminal reaches this process alone, which then ends the group as a whole.
    """

    def __init__(self, module: str, folder: str, arguments: Sequence[str] = (), pass_fds: tuple[int, ...] = ()) -> None:
        self.folder = folder
        self.leftovers: list[str] = []
        self.said = ""
        """The end of what it printed, as it was listened to last: when it was closed."""
        self._num_said = 0
        self._token = leftovers.token_of(folder)
        self._shm_names: set[str] = set()
        self._is_closed = False
        with open(os.path.join(folder, _WORDS_NAME), "wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, folder, *arguments],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                pass_fds=pass_fds,
                start_new_session=True,
                env={**os.environ, **THREAD_VARIABLES, "TMPDIR": folder, leftovers.TOKEN_VARIABLE: self._token},
            )

    @property
    def pid(self) -> int:
        """Its group's number too."""
        return self._process.pid

    def __enter__(self) -> "OwnProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    @property
    def last_line(self) -> str:
        """Of what it printed; empty where it printed nothing."""
        return next((line.strip() for line in reversed(self.said.splitlines()) if line.strip()), "")

    def tell(self, line: bytes) -> None:
        """Also where it is gone already."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def exit_code(self) -> int | None:
        """None while it runs, minus the signal that ended it."""
        return exit_code(self._process)

    def wait(self, seconds: float) -> int | None:
        """Its exit code, as soon as it has ended; None where time is up first."""
        latest = time.monotonic() + seconds
        while (code := self.exit_code()) is None and time.monotonic() < latest:
            time.sleep(_POLL_SECONDS)
        return code

    def remember_shared_memory(self) -> None:
        """Objects it uses now are its own, should it not be able to remove them."""
        self._shm_names |= leftovers.shared_memory_of(self.pid)

    def listen(self) -> bool:
        """Whether it has printed more since."""
        with open(os.path.join(self.folder, _WORDS_NAME), "rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes == self._num_said:
                return False
            self._num_said = num_bytes
            file.seek(max(num_bytes - _SAID_BYTES, 0))
            self.said = file.read().decode("utf-8", "replace")
            return True

    def close(self, grace_seconds: float = 0.0) -> None:
        """End the whole group and remove what it left. An end by itself is waited for; a grace is given by SIGTERM."""
        if self._is_closed:
            return
        with held_back():
            self._is_closed = True
            if self.exit_code() is not None:
                wait_for_group(self.pid, _LINGER_SECONDS)
                self.leftovers += [leftovers.described(pid) for pid in group_members(self.pid)]
            elif grace_seconds > 0:
                signal_group(self.pid, signal.SIGTERM)
                wait_for_group(self.pid, grace_seconds)
            self._shm_names |= leftovers.end_group(self.pid)
            self._process.wait()
            self.leftovers += leftovers.kill_strays(self._token, self.pid)
            self.leftovers += [f"/dev/shm/{name}" for name in leftovers.remove_shared_memory(self._shm_names)]
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self.listen()
