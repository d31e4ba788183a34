"""The process of one trial: ``python -m shardtools.bench.trial.child FOLDER``. Started by bench, never by users.

It speaks with the process that supervises it: its spec comes as the first line of standard input, words about how far it is go out
through the descriptor the second argument names, a JSON line each. After ``ready`` and ``measured`` it waits for a line, so that caches
can be prepared when everything is imported, and counters be read while its workers are alive. Its findings lie in FOLDER/result.json.
When standard input ends the supervisor is gone: then it ends its whole group and removes what is its own.
"""

import importlib
import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from typing import Any

from shardtools.bench.spec import TrialSpec, spec_of
from shardtools.bench.trial._leftovers import kill_strays, remove_shared_memory, shared_memory_of, token_of
from shardtools.bench.trial._words import EXIT_CODES, RESULT_NAME, last_words
from shardtools.errors import UsageError

_WAITS = ("ready", "measured")
_LIBRARIES = ("webdataset", "streaming")
"""Readers that are a library of that name; it is imported before the trial's time begins."""


class Supervisor:
    """The other end of the pipes."""

    def __init__(self, folder: str, out: int) -> None:
        self._folder = folder
        self._out = out
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="shardtools-supervisor", daemon=True).start()

    def next_line(self) -> bytes:
        return self._lines.get()

    def tell(self, event: str, facts: dict[str, Any]) -> None:
        """Returns when it has been heard, where that is to be waited for."""
        os.write(self._out, json.dumps({"event": event, **facts}).encode() + b"\n")
        if event in _WAITS:
            self._lines.get()

    def _listen(self) -> None:
        """By plain reads: the lock of ``sys.stdin`` would be found taken by forked workers."""
        left = b""
        while data := os.read(0, 65536):
            *lines, left = (left + data).split(b"\n")
            for line in lines:
                self._lines.put(line)
        group = os.getpgrp()
        kill_strays(token_of(self._folder), group)
        remove_shared_memory(shared_memory_of(group), group)
        shutil.rmtree(self._folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)


def main(folder: str, out: int) -> int:
    supervisor = Supervisor(folder, out)
    spec = spec_of(json.loads(supervisor.next_line()))
    status, message, found = "ok", "", {}
    try:
        found = _run(spec, supervisor)
    except BaseException as error:
        traceback.print_exc()
        status, message = _status_of(error), last_words(error)
    path = os.path.join(folder, RESULT_NAME)
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump({"status": status, "message": message, "found": found}, file)
    os.replace(f"{path}.part", path)
    sys.stdout.flush()
    sys.stderr.flush()
    return EXIT_CODES[status]


def _run(spec: TrialSpec, supervisor: Supervisor) -> dict[str, Any]:
    from shardtools.bench.trial import _run

    if spec.layout.reader in _LIBRARIES:
        importlib.import_module(spec.layout.reader)
    supervisor.tell("ready", {})
    return _run.run(spec, supervisor.tell)


def _status_of(error: BaseException) -> str:
    """What the child knows for sure; the rest is told from its words."""
    from shardtools.bench.trial._safety import RefusedError

    return "refused" if isinstance(error, UsageError | RefusedError) else "error"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
