"""What a process that bench started has of the one that started it: lines from its standard input, which end when that one is gone.

Then its whole group is ended and what is its own removed, whatever ended the other. A process from outside the group does that:
``python -m shardtools.bench.processes.lifeline FOLDER GROUP``. This one's main thread would meanwhile go on and start workers.
"""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from shardtools.bench.processes.leftovers import TOKEN_VARIABLE, end_group, kill_strays, remove_shared_memory, token_of

_END_SECONDS = 20.0


class Lifeline:
    """Begin it before anything that takes long. The process leads its group, and ``folder`` is its own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="shardtools-lifeline", daemon=True).start()

    def next_line(self) -> bytes:
        """Waits for it."""
        return self._lines.get()

    def _listen(self) -> None:
        """By plain reads: the lock of ``sys.stdin`` would be found taken by forked workers."""
        left = b""
        while data := os.read(0, 65536):
            *lines, left = (left + data).split(b"\n")
            for line in lines:
                self._lines.put(line)
        command = [sys.executable, "-m", "shardtools.bench.processes.lifeline", self.folder, str(os.getpgrp())]
        with suppress(OSError, subprocess.SubprocessError):  # without descriptors or processes to spare the group is ended, and no more
            subprocess.run(command, start_new_session=True, env={**os.environ, TOKEN_VARIABLE: ""}, timeout=_END_SECONDS)
        os.killpg(0, signal.SIGKILL)


def end(folder: str, group: int) -> None:
    """Of a process with its private folder, and of all it started, nothing is left."""
    names = end_group(group)
    kill_strays(token_of(folder), group)
    remove_shared_memory(names, group)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    end(sys.argv[1], int(sys.argv[2]))
