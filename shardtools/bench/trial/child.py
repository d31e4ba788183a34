"""The process of one trial: ``python -m shardtools.bench.trial.child FOLDER``. Started by bench, never by users.

It speaks with the process that supervises it: its spec comes as the first line of standard input, words about how far it is go out
through the descriptor the second argument names, a JSON line each. After ``ready`` and ``measured`` it waits for a line, so that caches
can be prepared when everything is imported, and counters be read while its workers are alive. Its findings lie in FOLDER/result.json.
When standard input ends the supervisor is gone: see ``Lifeline``.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any

from shardtools.bench.processes.leftovers import token_of
from shardtools.bench.processes.lifeline import Lifeline
from shardtools.bench.spec import TrialSpec, spec_of
from shardtools.bench.trial._words import EXIT_CODES, RESULT_NAME
from shardtools.bench.user_faults import sentence_of
from shardtools.errors import UsageError

_WAITS = ("ready", "measured")
_LIBRARIES = ("webdataset", "streaming")
"""Readers that are a library of that name; it is imported before the trial's time begins."""


class Supervisor:
    """The other end of the pipes."""

    def __init__(self, folder: str, out: int) -> None:
        self._lifeline = Lifeline(folder)
        self._out = out

    def next_line(self) -> bytes:
        return self._lifeline.next_line()

    def tell(self, event: str, facts: dict[str, Any]) -> None:
        """Returns when it has been heard, where that is to be waited for."""
        os.write(self._out, json.dumps({"event": event, **facts}).encode() + b"\n")
        if event in _WAITS:
            self.next_line()


def main(folder: str, out: int) -> int:
    supervisor = Supervisor(folder, out)
    spec = spec_of(json.loads(supervisor.next_line()))
    status, message, found = "ok", "", {}
    try:
        found = _run(spec, supervisor, folder)
    except BaseException as error:
        traceback.print_exc()
        status, message, found = _failed(error)
    path = os.path.join(folder, RESULT_NAME)
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump({"status": status, "message": message, "found": found}, file)
    os.replace(f"{path}.part", path)
    sys.stdout.flush()
    sys.stderr.flush()
    return EXIT_CODES[status]


def _run(spec: TrialSpec, supervisor: Supervisor, folder: str) -> dict[str, Any]:
    from shardtools.bench.trial import _run
    from shardtools.bench.trial._rehearsal import rehearsed

    if spec.layout.reader in _LIBRARIES:
        importlib.import_module(spec.layout.reader)
    rehearsal = rehearsed(spec, token_of(folder))
    supervisor.tell("ready", {})
    return _run.run(spec, supervisor.tell, rehearsal)


def _failed(error: BaseException) -> tuple[str, str, dict[str, Any]]:
    """What the child knows for sure, and what it foresaw; the rest is told from its words."""
    from shardtools.bench.trial._foresight import RefusedError

    if isinstance(error, RefusedError):
        return "refused", str(error), error.found
    return "refused" if isinstance(error, UsageError) else "error", sentence_of(error), {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
